"""`gear credit`: assign credit to saved rollouts with any method, and see where it goes now.

A record holds the signals that a method reads, so no model is run. Transcripts (message lists with a reward, recorded
elsewhere) are tokenised and scored with the model that --model names. Traces of verifiers hold their tokens: advantages are
written into them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gear_rl.cli import credit_check
from gear_rl.cli.arguments import POSITIVE, add_set, check_out, read_settings
from gear_rl.cli.credit_summary import Summary
from gear_rl.cli.settings import options_by_method
from gear_rl.errors import GearError
from gear_rl.files import replacing

if TYPE_CHECKING:
    from gear_rl.methods import Method
    from gear_rl.records.record import RecordedRollout

EPILOG = """examples:
  gear credit runs/workshop-gear-0 --credit token --set credit.alpha=8
  gear credit runs/workshop-gear-0 --check --credit gear,grpo
  gear credit transcripts.jsonl --credit gear --model MODEL -o credited.jsonl
  gear credit traces.jsonl --credit gear --model MODEL

A transcript is a line {"messages": [...], "reward": 1.0, "answer": "..."},
tool calls and all; docs/transcripts.md has the details. `gear report` opens
what is written. Traces are those of verifiers; the advantages of their tokens
are filled in."""
TRANSCRIPTS_ONLY = ("model", "hint_template", "chat_template", "temperature", "device")
_OWN_SCALE = "{name} would scale rewards its own way, but {what}, and these are used as they are. Add --from-rewards."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "record", metavar="FILE", type=Path, help="a record (rollouts.jsonl), a run's folder, transcripts, or traces"
    )
    parser.add_argument("--credit", metavar="NAME", help="the method (--check: methods A,B,…); `gear methods` lists them")
    add_set(parser, "credit.NAME (or NAME alone), chat.NAME (of the chat template), with --check task.NAME")
    parser.add_argument(
        "--from-rewards",
        action="store_true",
        help="compute group advantages from the rewards, instead of taking those that are given",
    )
    parser.add_argument(
        "-o", "--out", metavar="OUT", type=Path, help="the new record (FILE's name with .NAME or, checked, .measured added)"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    group = parser.add_argument_group("transcripts and traces")
    group.add_argument("--model", help="the model whose tokenizer, chat template and probabilities to use")
    group.add_argument("--hint-template", metavar="TEXT", help="how {prompt} and {hint} become the teacher's prompt")
    group.add_argument("--chat-template", metavar="FILE", type=Path, help="a chat template instead of the model's own")
    group.add_argument(
        "--temperature", type=POSITIVE, help="of scoring: what the rollouts were sampled with (default 1)"
    )
    group.add_argument("--device", help="default: auto")
    group.add_argument(
        "--hint-field", metavar="NAME", help="of a trace's task data: the hint (hint, ground_truth or answer)"
    )
    credit_check.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from gear_rl.cli.credit_traces import from_traces
    from gear_rl.methods import method
    from gear_rl.records.record import is_record
    from gear_rl.records.verifiers_traces import is_verifiers_traces

    source = args.record / "rollouts.jsonl" if args.record.is_dir() else args.record
    if args.record.is_dir() and not source.exists() and (args.record / "traces.jsonl").exists():
        source = args.record / "traces.jsonl"
    if args.check:
        return credit_check.run(args, source, _check_out)
    credit_check.refuse_without_check(args)
    settings = read_settings(args, ("credit", "chat"), short="credit")
    options = options_by_method(settings.get("credit", {}), [args.credit])[args.credit]
    chat = settings.get("chat", {})
    chosen = method(args.credit, **options)
    own_scale = "scale_rewards" in options or getattr(chosen, "scale_rewards", True) is False
    out = args.out or source.with_name(f"{source.stem}.{args.credit}.jsonl")
    if is_verifiers_traces(source):
        _check_out(source, out, args.force)
        return from_traces(args, source, out, chosen, own_scale, chat)
    if args.hint_field is not None:
        raise GearError(f"--hint-field is for traces of verifiers, which {source} does not hold.")
    if args.model is not None and not is_record(source):
        return from_transcripts(args, source, out, chosen, own_scale, chat)
    return from_record(args, source, out, chosen, own_scale, chat)


def from_record(
    args: argparse.Namespace, source: Path, out: Path, chosen: Method, own_scale: bool, chat: dict[str, Any]
) -> int:
    from gear_rl.records.record import is_record, open_record
    from gear_rl.records.transcripts import looks_like_transcripts

    given = [name for name in TRANSCRIPTS_ONLY if getattr(args, name) is not None] + (["set chat.NAME"] if chat else [])
    if given and is_record(source):
        name = given[0].replace("_", "-")
        raise GearError(f"--{name} is for transcripts. {source} is a record: its signals are in it, no model is run.")
    if looks_like_transcripts(source):
        raise GearError(f"{source} holds transcripts: name the model to tokenise and score them with, --model MODEL.")
    header, rollouts = open_record(source)
    _refuse_other_hint(source, header, chosen)
    _check_out(source, out, args.force)
    summary = Summary(header.get("method"), args.credit)
    reassign(rollouts, chosen, header, out, summary, args.from_rewards, own_scale)
    print(summary.text())
    print(f"\nwritten to {out}")
    return 0


SHOWN = {
    "own": "the problem's own hint",
    "other": "another problem's hint",
    "feedback": "the environment's feedback",
}
"""What a teacher is shown, by `Method.hint`; the others are shown a rollout of the group."""


def _refuse_other_hint(source: Path, header: dict[str, Any], chosen: Method) -> None:
    """A record's signals were read by the teacher of the method that it was trained with. Under another method's name they
    would be the credit of something that was never computed."""
    from gear_rl.assignment.signals import find_signal
    from gear_rl.methods import find_method

    read = [name for name in chosen.needs if (signal := find_signal(name)) and signal.follows_the_methods_hint]
    kept = header.get("trained_with", header)
    name = kept.get("method") if isinstance(kept, dict) else None
    try:
        hint = find_method(name).hint if isinstance(name, str) else None
    except GearError:  # of a package that is not installed here
        return
    if read and hint is not None and hint != chosen.hint:
        was, wanted = (SHOWN.get(str(h), "a rollout of the group") for h in (hint, chosen.hint))
        raise GearError(
            f"{source}: {chosen.name} reads {', '.join(read)} of a teacher that is shown {wanted}, and the record's "
            f"({name}) was shown {was}. The signals in it would not be {chosen.name}'s: train with --credit {chosen.name}, "
            "or give transcripts and a --model."
        )


def from_transcripts(
    args: argparse.Namespace, source: Path, out: Path, chosen: Method, own_scale: bool, chat: dict[str, Any]
) -> int:
    from gear_rl.chat.hints import DEFAULT_TEMPLATE, check_template
    from gear_rl.chat.templates import read_template
    from gear_rl.engines.record import write_scored
    from gear_rl.engines.transcripts import check, credited
    from gear_rl.methods import METHODS
    from gear_rl.records.transcripts import read_transcripts
    from gear_rl.records.writer import RecordWriter

    temperature = 1.0 if args.temperature is None else args.temperature
    template = args.hint_template or DEFAULT_TEMPLATE
    check_template(template)
    chat_template = read_template(args.chat_template) if args.chat_template else None
    rows = read_transcripts(source)
    if own_scale and rows[0].advantage is not None and not args.from_rewards:
        raise GearError(_OWN_SCALE.format(name=chosen.name, what="the transcripts hold advantages"))
    check(rows, chosen, args.from_rewards)
    _check_out(source, out, args.force)
    model, tokenizer = _load(args.model, args.device or "auto", bool(chosen.needs))
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    facts = {"task": "transcripts", "source": source.name, "model": args.model, "method": chosen.name}
    facts |= {"options": vars(chosen.options), "hint_template": template if chosen.hint else None}
    facts |= {"temperature": temperature, "chat": chat}
    summary = Summary("grpo", args.credit, "by grpo")
    last_line = time.monotonic()

    def say(done: int) -> None:
        nonlocal last_line
        if time.monotonic() - last_line > 10:
            last_line = time.monotonic()
            print(f"{done}/{len(rows)} transcripts", file=sys.stderr, flush=True)

    with replacing(out) as scratch, RecordWriter(scratch, facts) as writer:
        for scored, credited_rows in credited(
            rows,
            chosen,
            model,
            tokenizer,
            name=args.model,
            hint_template=template,
            temperature=temperature,
            from_rewards=args.from_rewards,
            chat=chat,
            say=say,
        ):
            token_texts = write_scored(writer, scored, tokenizer, [row.success for row in credited_rows])
            actions, before = scored.rollouts.actions, METHODS["grpo"]().assign(scored.rollouts).advantages
            turns = actions.unpack(actions.turn_starts.cumsum(1))
            for i, texts in enumerate(token_texts):
                summary.add(
                    scored.rollouts.action_mask[i].tolist(),
                    turns[i].tolist(),
                    texts,
                    before[i].tolist(),
                    scored.credit.advantages[i].tolist(),
                )
    print(summary.text())
    print(f"\nwritten to {out}")
    return 0


def _load(path: str, device: str, with_model: bool) -> tuple[Any, Any]:
    """Model and tokenizer; the tokenizer alone where no signals are needed."""
    from gear_rl.models import choose_device, find_model, load_model, load_tokenizer

    path = find_model(path)
    return load_model(path, choose_device(device)) if with_model else (None, load_tokenizer(path))


def _check_out(source: Path, out: Path, force: bool) -> None:
    if out.exists() and out.samefile(source):
        raise GearError(f"{out} is the record being read; write the new one elsewhere.")
    check_out(out, force)


def reassign(
    rollouts: Iterator[RecordedRollout],
    chosen: Method,
    header: dict[str, Any],
    out: Path,
    summary: Summary,
    from_rewards: bool,
    own_scale: bool,
) -> None:
    """Credit by `chosen`, step by step, into a new record at `out`; a failure leaves nothing there.

    `own_scale`: the method is meant to scale rewards its own way, which it cannot where an engine has done so already.
    """
    from gear_rl.records.record import to_rollouts
    from gear_rl.records.writer import RecordWriter

    facts = {key: value for key, value in header.items() if key not in ("schema", "version")}
    facts |= {
        "method": chosen.name,
        "options": vars(chosen.options),
        "trained_with": header.get("trained_with", {"method": header.get("method"), "options": header.get("options")}),
    }
    with replacing(out) as scratch:
        with RecordWriter(scratch, facts) as writer:
            for step, lines in groupby(rollouts, key=lambda line: line.step):
                batch = list(lines)
                tensors = to_rollouts(batch, from_rewards=from_rewards)
                if own_scale and tensors.advantages is not None:
                    what = "the record holds the advantages that the engine trained with"
                    raise GearError(_OWN_SCALE.format(name=chosen.name, what=what))
                credit = chosen.assign(tensors)
                writer.write(
                    step=step,
                    rollouts=tensors,
                    credit=credit,
                    prompts=[line.prompt for line in batch],
                    hinted_prompts=[line.hinted_prompt for line in batch],
                    token_texts=[line.token_texts for line in batch],
                    successes=[line.success for line in batch],
                    verdicts=[line.verdict for line in batch],
                    problems=[line.problem for line in batch],
                )
                summary.steps += 1
                for line, after in zip(batch, credit.advantages.tolist(), strict=True):
                    summary.add(line.action_mask, line.turns, line.token_texts, line.advantages, after)
        if not summary.rollouts:
            raise GearError("the record has a header and no rollouts.")
