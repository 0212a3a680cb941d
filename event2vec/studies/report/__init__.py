"""A report page about a run: data, training, accuracy, robustness, attention, embedding, speed, how to reproduce it.

The page is one file. Figures and events are embedded, and nothing is loaded from elsewhere. It is rewritten after each
section, so that a late crash keeps the earlier sections; a page from an earlier call is replaced only at the end.
"""

import html
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from event2vec.errors import Event2VecWarning, FileError
from event2vec.evaluation.evaluate import Evaluation
from event2vec.execution import Execution, ExecutionOptions
from event2vec.machine.atomic import whole_file
from event2vec.model.classifier import count_parameters
from event2vec.names import counted, excerpt
from event2vec.player.page import read_part, start_player
from event2vec.studies.report.sections import PAGE, SECTIONS
from event2vec.studies.report.study import Study
from event2vec.training.run import Run


@dataclass(frozen=True)
class Report:
    """A finished page, and the sections that failed."""

    page: Path
    evaluation: Evaluation | None  # None if the accuracy could not be measured
    problems: dict[str, str]  # the title of a section, and why it is missing

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        evaluation = None if self.evaluation is None else self.evaluation.facts()
        return {"page": str(self.page), "evaluation": evaluation, "problems": self.problems}


def report(
    run: str | Path | Run,
    path: str | Path | None = None,
    *,
    repeats: int = 10,
    data: str | Path | None = None,
    **how: Unpack[ExecutionOptions],
) -> Report:
    """Evaluate a run in every way, draw it, and write the page. A failed section says so; the others are still made.

        report("runs/digits").page

    `data` says where the recordings are now, if they were moved. `how` is `workers`, `device`, `precision` and
    `progress`.
    """
    run, given = Run.open(run), Execution(**how)
    run.facts  # noqa: B018  # a folder with only a network is refused
    path = Path(path) if path else run.page
    if path.is_dir():
        raise FileError(path, "is a folder, expected the name of a file for the page")
    compute = run.compute(given.device, given.precision)
    model = run.model().to(compute.device)
    whole = run.store(data, workers=given.workers, progress=given.progress)
    raw = run.raw_store(data, given.workers, given.progress, "test").split("test")
    study = Study(run, model, whole, raw, repeats, given.progress, compute)
    if raw.sources != study.store.sources:
        raise FileError(raw.folder, f"does not have the test recordings of {whole.folder}; set them with `data`")
    problems = _write_sections(study, path)
    return Report(path, study.measured, problems)


def _write_sections(study: Study, path: Path) -> dict[str, str]:
    """Make the sections one by one; returns the titles of those that failed, with the reasons."""
    sections, problems = dict.fromkeys(SECTIONS, "<p class=wrong>Not made yet.</p>"), dict[str, str]()
    keep_earlier = path.exists()
    with study.progress.stage("report", len(SECTIONS)):
        for number, (title, make) in enumerate(SECTIONS.items()):
            study.progress.advance(number, title)
            try:
                sections[title] = make(study)
            except Exception as error:  # the other sections are still useful
                problems[title] = excerpt(error, 200) or type(error).__name__
                problem = f"the section '{title}' could not be made: {problems[title]}"
                warnings.warn(problem, Event2VecWarning, stacklevel=3)
                sections[title] = f"<p class=wrong>This could not be made: {html.escape(problems[title])}</p>"
            if not keep_earlier:
                _write_page(path, study, sections)
    if keep_earlier:
        _write_page(path, study, sections)
    return problems


def _write_page(path: Path, study: Study, sections: Mapping[str, str]) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(_page(study, sections), "utf-8", "backslashreplace")  # paths may not be valid text


def _page(study: Study, sections: Mapping[str, str]) -> str:
    name = html.escape(study.run.folder.resolve().name)
    links = "".join(f"<a href='#s{number}'>{title}</a>" for number, title in enumerate(sections))
    body = "".join(
        f"<h2 id='s{number}'>{title}</h2>{content}" for number, (title, content) in enumerate(sections.items())
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{name}</title>"
        "<meta name=viewport content='width=device-width'><link rel=icon href='data:,'>"
        f"<style>{(PAGE / 'style.css').read_text('utf-8')}{read_part('player.css')}</style>"
        f"<h1>{name}</h1><p class=lead>{_lead(study)}</p>"
        f"<nav>{links}</nav>{body}{start_player()}</html>\n"
    )


def _lead(study: Study) -> str:
    parameters, evaluation = f"{count_parameters(study.model):,} parameters", study.measured
    if evaluation is None:
        return f"A network with {parameters}. Its accuracy is unknown; see Accuracy below."
    share = f"<b>{evaluation.percent(1)} %</b> (95 % interval {evaluation.interval.percent(1)} %)"
    classes = counted(len(evaluation.class_names), "class", "classes")
    of = f"{counted(evaluation.recordings, 'test recording')} of {classes}"
    return f"Recognises {share} of {of}, with {parameters}."
