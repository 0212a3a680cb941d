"""Answers over time, for `predict`: options, tables, JSON lines, CSV and a picture."""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from event2vec.choices import Smoothing
from event2vec.cli.options import add_window_options, check_free, read_windows, reading_options
from event2vec.cli.parser import existing_or, file_to_write, positive
from event2vec.cli.printing import print_table, say
from event2vec.cli.progress import shown_progress
from event2vec.errors import Event2VecError, FileError
from event2vec.names import counted

if TYPE_CHECKING:
    from event2vec.data.labels import Span
    from event2vec.data.windows import Windows
    from event2vec.evaluation.predict import FileAnswer
    from event2vec.evaluation.timeline import Timeline
    from event2vec.model.predictor import Predictor

ASKED = ("window", "stride", "min_events", "window_events", "smooth", "smooth_over", "csv", "picture", "page", "labels")
PICTURES = (".png", ".svg", ".pdf")


def add_timeline_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(
        "long recordings", "Answers over time: the default for a network trained on windows."
    )
    add_window_options(group)
    group.add_argument("--whole", action="store_true", help="one answer per recording, however long it is")
    group.add_argument(
        "--smooth",
        choices=get_args(Smoothing),
        help="reduce flicker: a running mean of the scores (mean, the default) or a hidden Markov model (hmm)",
    )
    group.add_argument(
        "--smooth-over",
        type=positive,
        metavar="SECONDS",
        help="length of the running mean, or with hmm the minimum duration of an answer (default: five windows)",
    )
    group.add_argument("--csv", type=file_to_write, metavar="FILE", help="every window with the scores of all classes")
    group.add_argument(
        "--picture", type=file_to_write, metavar="FILE", help="answers and scores over the event rate: .png, .svg, .pdf"
    )
    group.add_argument(
        "--page", type=file_to_write, metavar="FILE", help="the event player with the answers over time, as .html"
    )
    group.add_argument("--overwrite", action="store_true", help="replace the files of --csv, --picture and --page")
    group.add_argument(
        "--labels",
        metavar="TABLE",
        type=existing_or("beside", "a table of file, start, stop and class, or beside"),
        help="score the answers: a table of file, start, stop (seconds) and class, or beside for NAME_labels.csv",
    )


def check_timeline_options(options: Namespace) -> None:
    """What can be refused before the network is loaded."""
    asked = _asked(options)
    if options.whole and asked:
        raise Event2VecError(f"--whole gives one answer for a recording and {asked[0]} answers over time; choose one")
    if options.smooth == "none" and options.smooth_over is not None:
        raise Event2VecError("--smooth-over is for --smooth mean and hmm; omit it with --smooth none")
    if options.window or options.window_events:
        read_windows(options)
    if options.picture and Path(options.picture).suffix.lower() not in PICTURES:
        raise FileError(options.picture, f"is not a picture, expected a name that ends in {', '.join(PICTURES)}")
    if options.page and Path(options.page).suffix.lower() != ".html":
        raise FileError(options.page, "is not a page, expected a name that ends in .html")
    for name in ("csv", "picture", "page"):
        if getattr(options, name):
            check_free(getattr(options, name), options.overwrite, f"--{name}")
    shown = "--picture" if options.picture else "--page" if options.page else None
    if shown and (len(options.files) > 1 or Path(options.files[0]).is_dir()):
        raise Event2VecError(f"{shown} shows one recording; give one FILE")


def _asked(options: Namespace) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in ASKED if getattr(options, name) is not None]


def wants_timeline(model: "Predictor", options: Namespace) -> bool:
    """Whether answers over time were asked for, or are what the network is for."""
    return not options.whole and (bool(_asked(options)) or model.windows is not None)


def answer_over_time(model: "Predictor", files: "list[FileAnswer]", options: Namespace) -> int:
    """The timeline of each recording, one after the other; 2 if one could not be answered."""
    from event2vec.evaluation.timeline import write_timelines

    windows, failed = _windows(model, options), 0
    found = []
    for file, problem in ((each.file, each.error) for each in files):
        try:
            if problem is not None:
                raise Event2VecError(problem)
            labels = _labels(model, file, options)
            timeline = _answer(model, file, windows, options)
            found.append((file, timeline))
            _show(file, timeline, labels, options)
        except Event2VecError as error:
            failed += 1
            say(f"event2vec: {error}" if file in str(error) else f"event2vec: {file}: {error}")
            if options.json:
                print(json.dumps({"file": file, "error": str(error)}))
    if options.csv and found:
        write_timelines(found, options.csv)
        say(f"Every window is in {options.csv}")
    return 2 if failed else 0


def _windows(model: "Predictor", options: Namespace) -> "Windows | None":
    """As asked for; what was not asked for is as in the training."""
    if options.window or options.window_events or model.windows is None:
        return read_windows(options)
    changes = {name: getattr(options, name) for name in ("stride", "min_events") if getattr(options, name) is not None}
    try:
        return replace(model.windows, **changes)
    except ValueError as error:
        raise Event2VecError(f"windows: {error}") from None


def _answer(model: "Predictor", file: str, windows: "Windows | None", options: Namespace) -> "Timeline":
    from event2vec.evaluation.timeline import timeline

    how: dict[str, Any] = {
        "smoothing": options.smooth or "mean",
        "smooth_over": options.smooth_over,
        "min_confidence": options.min_confidence,
        "vote": options.vote,
        "progress": shown_progress(),
        **reading_options(options),
    }
    if not options.page:
        return timeline(model, file, windows, **how)
    from event2vec.evaluation.figures.clips import view_answers

    return view_answers(model, file, options.page, windows, labels=options.labels, **how)


class _Labels(NamedTuple):
    spans: "list[Span]"
    clock: int  # what the camera's clock showed at the first event


def _labels(model: "Predictor", file: str, options: Namespace) -> _Labels:
    """Read first: a slip in a table must not cost the time of all answers."""
    from event2vec.data.labels import labels_of
    from event2vec.evaluation.timeline_score import match_labels

    if not options.labels:
        return _Labels([], 0)
    spans, clock = labels_of(file, options.labels)
    return _Labels(match_labels(spans, model.class_names), clock)


def _show(file: str, timeline: "Timeline", labels: _Labels, options: Namespace) -> None:
    from event2vec.evaluation.timeline_score import score_timeline

    score = score_timeline(timeline, *labels) if labels.spans else None
    spans = timeline.spans
    if options.json:
        for span in spans:
            print(json.dumps({"file": file, **span.facts()}))
        if score:
            print(json.dumps({"file": file, "score": score.facts()}))
    else:
        cells = [
            (
                f"{span.start / 1e6:.3f}",
                f"{span.stop / 1e6:.3f}",
                span.name,
                _percent(span.confidence),
                f"{span.windows:,}",
            )
            for span in spans
        ]
        print_table(("start s", "stop s", "answer", "confidence", "windows"), cells, left=("answer",), title=file)
    say(
        f"{file}: {timeline.windows.count(len(timeline))}, {counted(len(spans), 'span')} in "
        f"{timeline.duration / 1e6:.3f} s"
    )
    if score:
        say(f"{file}: {score.summary}")
    _remark(file, timeline)
    if options.picture:
        from event2vec.evaluation.figures.timelines import draw_timeline

        draw_timeline(timeline, Path(options.picture), Path(file).name, *labels)
        say(f"Picture: {options.picture}")
    if options.page:
        say(f"Player: {options.page}")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _remark(file: str, timeline: "Timeline") -> None:
    if timeline.left_out:
        say(f"event2vec: {file}: {counted(timeline.left_out, 'window')} had too few events for an answer")
    if timeline.scaled_from:
        say(f"event2vec: {file}: scaled from {timeline.scaled_from} to the sensor that the network reads")
    if timeline.remark:
        verb = "is" if timeline.far == 1 else "are"
        said = f"{timeline.far:,} of {counted(len(timeline), 'window')} {verb} unlike the training recordings"
        say(f"event2vec: {file}: {said}: {timeline.remark}")
