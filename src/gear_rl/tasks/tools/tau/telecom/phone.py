"""τ²-bench telecom, the user's side: a phone, its settings, and what of them lets calls, data and picture messages through.

Written from the benchmark's support manual, which says what breaks what and how it is corrected, then compared by reading with
the official simulation: which settings make the phone look for a network again, and how fast a network is, are facts of that.
A line that was resumed has service when the phone has looked again, at a restart say.
"""

from __future__ import annotations

import copy
from typing import Any

from gear_rl.chat.tool_calls import Refused
from gear_rl.tasks.tools.tau.telecom.carrier import Carrier

TECHNOLOGY = {"4g_5g_preferred": "5G", "4g_only": "4G", "3g_only": "3G", "2g_only": "2G"}
"""Network mode → what the phone then connects by."""
SPEED = {"5G": 220.0, "4G": 44.0, "3G": 2.4, "2G": 0.2, "none": 0.0}
"""Megabits a second at a good signal."""
DATA_SAVER, POOR_VPN = 0.2, 0.1
"""What is left of the speed."""
NAMES = ((100.0, "excellent"), (25.0, "good"), (5.0, "fair"), (1.0, "poor"), (0.0, "very poor"))
MMS_PERMISSIONS = ("sms", "storage")


class Phone:
    """Every public method is a tool of whoever holds the phone; its first line tells what it does."""

    def __init__(self, device: dict[str, Any], carrier: Carrier) -> None:
        self._device, self._carrier = copy.deepcopy(device), carrier
        self._apn = copy.deepcopy(device["active_apn_settings"])
        """What a reset brings back."""
        self._device |= {"apn_reset_waits": False, "vpn_performance": None}
        self._owner: dict[str, Any] = {"name": "", "phone_number": "", "abroad": False}

    # --------------------------------------------------------------------------------------------------------- to look at
    def check_status_bar(self) -> Any:
        """Read the icons of the status bar: Airplane Mode, signal, network, mobile data, Data Saver, Wi-Fi, VPN, battery."""
        d = self._device
        signal = f"signal {d['network_signal_strength']}" if self._has_service() else "no signal"
        icons = ["Airplane Mode"] if d["airplane_mode"] else [signal]
        icons += [d["network_technology_connected"]] if self._has_service() else []
        icons += ["mobile data on" if d["data_enabled"] else "mobile data off"]
        icons += ["Data Saver"] if d["data_saver_mode"] else []
        icons += ["Wi-Fi on"] if d["wifi_enabled"] else []
        icons += ["VPN connected"] if d["vpn_connected"] else []
        return {"status_bar": [*icons, f"battery {d['battery_level']} %"]}

    def check_network_status(self) -> Any:
        """Check Airplane Mode, SIM card, connection, signal, network technology, mobile data and data roaming."""
        shown = (
            "airplane_mode", "network_connection_status", "network_signal_strength", "network_technology_connected",
            "data_enabled", "roaming_enabled", "wifi_enabled", "wifi_connected",
        )  # fmt: skip
        return {key: self._device[key] for key in shown} | {"sim_card": self._sim()}

    def check_network_mode_preference(self) -> Any:
        """Check which kind of network the phone prefers."""
        return {"network_mode_preference": self._device["network_mode_preference"]}

    def check_sim_status(self) -> Any:
        """Check whether the SIM card is active, missing, or locked."""
        return {"sim_card": self._sim()}

    def check_data_restriction_status(self) -> Any:
        """Check whether Data Saver limits the use of data."""
        return {"data_saver_mode": self._device["data_saver_mode"]}

    def check_apn_settings(self) -> Any:
        """Check the APN's name and the MMSC URL for picture messages."""
        return {"apn_settings": self._device["active_apn_settings"]}

    def check_wifi_status(self) -> Any:
        """Check whether Wi-Fi is on and connected."""
        return {key: self._device[key] for key in ("wifi_enabled", "wifi_connected", "wifi_signal_strength")}

    def check_wifi_calling_status(self) -> Any:
        """Check whether Wi-Fi Calling is on."""
        return {"wifi_calling_enabled": self._device["wifi_calling_enabled"]}

    def check_vpn_status(self) -> Any:
        """Check whether a VPN is connected, and how well it performs."""
        return {key: self._device[key] for key in ("vpn_enabled_setting", "vpn_connected", "vpn_performance")}

    def check_installed_apps(self) -> Any:
        """List the installed apps."""
        return {"apps": sorted(self._device["app_statuses"])}

    def check_app_status(self, app_name: str) -> Any:
        """Check an app's details, its permissions among them."""
        return self._app(app_name)

    def check_app_permissions(self, app_name: str) -> Any:
        """Check what an app is permitted to use."""
        return {"permissions": self._app(app_name)["permissions"]}

    def run_speed_test(self) -> Any:
        """Measure the download speed of mobile data."""
        speed, name = self._speed()
        return {"result": "no connection"} if not speed else {"megabits_per_second": round(speed, 1), "result": name}

    def can_send_mms(self) -> Any:
        """Check whether the messaging app can send picture messages."""
        return {"can_send_mms": self._mms_works()}

    def check_payment_request(self) -> Any:
        """See whether the carrier has asked for a payment."""
        bill = self._asked_for()
        return {"payment_request": {key: bill[key] for key in ("bill_id", "total_due")} if bill else None}

    # ---------------------------------------------------------------------------------------------------------- to change
    def set_network_mode_preference(self, mode: str) -> Any:
        """Choose the kind of network: 4g_5g_preferred, 4g_only, 3g_only or 2g_only."""
        if mode not in TECHNOLOGY:
            raise Refused(f"the modes are {', '.join(TECHNOLOGY)}, not {mode!r}")
        self._device["network_mode_preference"] = mode
        return self._searched({"network_mode_preference": mode})

    def toggle_airplane_mode(self) -> Any:
        """Turn Airplane Mode on or off."""
        self._airplane(not self._device["airplane_mode"])
        return self._searched({"airplane_mode": self._device["airplane_mode"]})

    def reseat_sim_card(self) -> Any:
        """Take the SIM card out and put it in again."""
        self._device["sim_card_missing"] = False
        return self._searched({"sim_card": self._sim()})

    def toggle_data(self) -> Any:
        """Turn mobile data on or off."""
        return self._searched(self._toggled("data_enabled"))

    def toggle_roaming(self) -> Any:
        """Turn data roaming on or off."""
        return self._searched(self._toggled("roaming_enabled"))

    def toggle_data_saver_mode(self) -> Any:
        """Turn Data Saver on or off."""
        return self._toggled("data_saver_mode")

    def set_apn_settings(self, apn_name: str, mmsc_url: str) -> Any:
        """Write the APN's name and the MMSC URL by hand."""
        self._device["active_apn_settings"] |= {"apn_name": apn_name, "mmsc_url": mmsc_url}
        return self._searched({"apn_settings": self._device["active_apn_settings"]})

    def reset_apn_settings(self) -> Any:
        """Bring the APN settings back to the carrier's. It takes effect when the phone is rebooted."""
        self._device["apn_reset_waits"] = True
        return self._searched({"done": "the APN settings will be reset at the next reboot"})

    def toggle_wifi(self) -> Any:
        """Turn Wi-Fi on or off."""
        if self._device["airplane_mode"]:
            raise Refused("Airplane Mode is on")
        return self._toggled("wifi_enabled")

    def toggle_wifi_calling(self) -> Any:
        """Turn Wi-Fi Calling on or off."""
        return self._toggled("wifi_calling_enabled")

    def connect_vpn(self) -> Any:
        """Connect to the VPN."""
        if self._device["vpn_connected"]:
            raise Refused("the VPN is connected already")
        self._device |= {"vpn_enabled_setting": True, "vpn_connected": True, "vpn_performance": "excellent"}
        return {"vpn_connected": True}

    def disconnect_vpn(self) -> Any:
        """Disconnect the VPN."""
        if not self._device["vpn_connected"]:
            raise Refused("no VPN is connected")
        self._device |= {"vpn_enabled_setting": False, "vpn_connected": False, "vpn_performance": None}
        return {"vpn_connected": False}

    def grant_app_permission(self, app_name: str, permission: str) -> Any:
        """Permit an app to use something, such as storage or sms."""
        permissions = self._app(app_name)["permissions"]
        if permission.lower() not in permissions:
            raise Refused(f"{app_name} asks for {', '.join(permissions)}, not for {permission!r}")
        permissions[permission.lower()] = True
        return {"permissions": permissions}

    def reboot_device(self) -> Any:
        """Restart the phone."""
        if self._device["apn_reset_waits"]:
            self._device |= {"active_apn_settings": copy.deepcopy(self._apn), "apn_reset_waits": False}
        return self._searched({"done": "restarted"})

    def make_payment(self) -> Any:
        """Pay the bill the carrier has asked to be paid."""
        bill = self._asked_for()
        if bill is None:
            raise Refused("there is no payment request")
        bill["status"] = "Paid"
        return {"done": f"bill {bill['bill_id']} is paid", "amount": bill["total_due"]}

    # ------------------------------------------------------------------------------------------------------ how it works
    def _sim(self) -> str:
        return "missing" if self._device["sim_card_missing"] else self._device["sim_card_status"]

    def _has_service(self) -> bool:
        return self._device["network_connection_status"] == "connected"

    def _line(self) -> dict[str, Any]:
        return self._carrier._line_with(self._owner["phone_number"])

    def _search(self) -> None:
        """Look for a network: with a radio, an active SIM card, the carrier's APN and an active line there is one."""
        device = self._device
        found = (
            not device["airplane_mode"]
            and self._sim() == "active"
            and device["active_apn_settings"]["apn_name"] == self._apn["apn_name"]
            and self._line()["status"] == "Active"
        )
        device["network_connection_status"] = "connected" if found else "no_service"
        device["network_technology_connected"] = TECHNOLOGY[device["network_mode_preference"]] if found else "none"
        device["network_signal_strength"] = "good" if found else "none"

    def _searched(self, answer: dict[str, Any]) -> dict[str, Any]:
        self._search()
        return answer | {"network_connection_status": self._device["network_connection_status"]}

    def _toggled(self, setting: str) -> dict[str, Any]:
        self._device[setting] = not self._device[setting]
        return {setting: self._device[setting]}

    def _airplane(self, on: bool) -> None:
        self._device["airplane_mode"] = on
        if on:
            self._device |= {"wifi_connected": False, "vpn_connected": False, "vpn_performance": None}

    def _app(self, name: str) -> dict[str, Any]:
        apps = self._device["app_statuses"]
        if name not in apps:
            raise Refused(f"there is no app {name!r}; there are {', '.join(apps)}")
        return apps[name]

    def _asked_for(self) -> dict[str, Any] | None:
        customer = self._carrier._customer_with(self._owner["phone_number"])
        bills = self._carrier._bills(customer["customer_id"])
        return next((bill for bill in bills if bill["status"] == "Awaiting Payment"), None)

    def _data_works(self) -> bool:
        line = self._line()
        at_home = not self._owner["abroad"] or (self._device["roaming_enabled"] and line["roaming_enabled"])
        return self._has_service() and self._device["data_enabled"] and at_home and not self._carrier._used_up(line)

    def _speed(self) -> tuple[float, str]:
        if not self._data_works():
            return 0.0, "unknown"
        speed = SPEED[self._device["network_technology_connected"]]
        speed *= DATA_SAVER if self._device["data_saver_mode"] else 1.0
        speed *= POOR_VPN if self._device["vpn_connected"] and self._device["vpn_performance"] == "poor" else 1.0
        return speed, next(name for least, name in NAMES if speed >= least)

    def _mms_works(self) -> bool:
        device, permissions = self._device, self._app("messaging")["permissions"]
        return (
            self._data_works()
            and device["network_technology_connected"] != "2G"
            and not (device["wifi_calling_enabled"] and device["wifi_calling_mms_over_wifi"])
            and bool(device["active_apn_settings"]["mmsc_url"])
            and all(permissions[name] for name in MMS_PERMISSIONS)
        )
