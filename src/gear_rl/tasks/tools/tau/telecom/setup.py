"""τ²-bench telecom: how a task begins and how it is judged. The data names these functions, and no others are called for it."""

from __future__ import annotations

from typing import Any

from gear_rl.tasks.tools.tau.telecom.carrier import ENDED, TODAY, Carrier
from gear_rl.tasks.tools.tau.telecom.phone import Phone


class Setup:
    """Public methods may be named in a task: what is out of order at its start, or (assert_…) what must hold at its end."""

    def __init__(self, phone: Phone, carrier: Carrier) -> None:
        self._phone, self._carrier = phone, carrier

    # ---------------------------------------------------------------------------------------------------- the beginning
    def set_user_info(self, name: str, phone_number: str) -> None:
        self._phone._owner |= {"name": name, "phone_number": phone_number}

    def set_user_location(self, abroad: bool) -> None:
        self._phone._owner["abroad"] = abroad

    def simulate_network_search(self) -> None:
        self._phone._search()

    def turn_airplane_mode_on(self) -> None:
        self._phone._airplane(True)
        self._phone._search()

    def set_network_mode_preference(self, mode: str) -> None:
        self._phone.set_network_mode_preference(mode)

    def turn_data_off(self) -> None:
        self._phone._device["data_enabled"] = False

    def turn_roaming_on(self) -> None:
        self._phone._device["roaming_enabled"] = True

    def turn_roaming_off(self) -> None:
        self._phone._device["roaming_enabled"] = False

    def turn_data_saver_mode_on(self) -> None:
        self._phone._device["data_saver_mode"] = True

    def unseat_sim_card(self) -> None:
        self._phone._device["sim_card_missing"] = True
        self._phone._search()

    def lock_sim_card(self, mode: str) -> None:
        self._phone._device["sim_card_status"] = f"locked_{mode}"
        self._phone._search()

    def break_apn_settings(self) -> None:
        self._phone._device["active_apn_settings"]["apn_name"] = "broken"
        self._phone._search()

    def break_apn_mms_setting(self) -> None:
        self._phone._device["active_apn_settings"]["mmsc_url"] = None

    def break_vpn(self) -> None:
        self._phone._device |= {"vpn_enabled_setting": True, "vpn_connected": True, "vpn_performance": "poor"}

    def set_wifi_calling(self, enabled: bool, mms_over_wifi: bool) -> None:
        self._phone._device |= {"wifi_calling_enabled": enabled, "wifi_calling_mms_over_wifi": mms_over_wifi}

    def remove_app_permission(self, app_name: str, permission: str) -> None:
        self._phone._app(app_name)["permissions"][permission] = False

    def set_data_usage(self, customer_id: str, line_id: str, data_used_gb: float) -> None:
        self._carrier._line(customer_id, line_id)["data_used_gb"] = data_used_gb

    def enable_roaming(self, customer_id: str, line_id: str) -> None:
        self._carrier.enable_roaming(customer_id, line_id)

    def disable_roaming(self, customer_id: str, line_id: str) -> None:
        self._carrier.disable_roaming(customer_id, line_id)

    def suspend_line_for_overdue_bill(
        self, customer_id: str, line_id: str, new_bill_id: str, contract_ended: bool
    ) -> None:
        line = self._carrier._line(customer_id, line_id)
        price = self._carrier._get("plans", line["plan_id"])["price_per_month"]
        self._carrier._tables["bills"][new_bill_id] = {
            "bill_id": new_bill_id,
            "customer_id": customer_id,
            "issue_date": "2025-01-01",
            "due_date": "2025-01-15",
            "total_due": price,
            "status": "Overdue",
            "line_items": [{"description": f"Charge for line {line_id}", "amount": price}],
        }
        self._carrier._get("customers", customer_id)["bill_ids"].append(new_bill_id)
        line |= {"status": "Suspended", "suspension_start_date": TODAY}
        if contract_ended:
            line["contract_end_date"] = ENDED

    # ---------------------------------------------------------------------------------------------------------- the end
    def assert_service_status(self, expected_status: str) -> bool:
        return self._phone._device["network_connection_status"] == expected_status

    def assert_mobile_data_status(self, expected_status: bool) -> bool:
        return self._phone._data_works() == expected_status

    def assert_internet_speed(self, expected_speed: float, expected_desc: str = "") -> bool:
        speed, name = self._phone._speed()
        return speed >= expected_speed and expected_desc.lower() in ("", name)

    def assert_can_send_mms(self, expected_status: bool) -> bool:
        return self._phone._mms_works() == expected_status

    def assert_data_refueling_amount(self, customer_id: str, line_id: str, expected_amount: float) -> bool:
        return abs(self._carrier._line(customer_id, line_id)["data_refueling_gb"] - expected_amount) < 1e-6

    def assert_no_overdue_bill(self, overdue_bill_id: str) -> bool:
        bill: dict[str, Any] = self._carrier._tables["bills"].get(overdue_bill_id, {"status": "Paid"})
        return bill["status"] == "Paid"
