"""Which files in a folder are recordings. Files that clearly are not are skipped and counted."""

from pathlib import Path

NAMES = {"thumbs.db", "ehthumbs.db", "desktop.ini", "makefile"}
STEMS = {"readme", "license", "licence", "copying", "notice", "changelog", "citation", "checksums", "md5sums"}
DOCUMENTS = ("md", "rst", "tex", "bib", "pdf", "rtf", "doc", "docx", "odt", "xls", "xlsx", "ods", "ppt", "pptx", "html")
PICTURES = ("png", "jpg", "jpeg", "gif", "bmp", "svg", "tif", "tiff", "webp", "mp4", "avi", "mov", "mkv", "wav", "mp3")
PROGRAMS = ("py", "pyc", "ipynb", "m", "c", "cpp", "h", "sh", "bat", "json", "yaml", "yml", "toml", "xml", "ini", "cfg")
ARCHIVES = ("zip", "tar", "gz", "tgz", "bz2", "xz", "7z", "rar", "md5", "sha256", "log", "lnk", "tmp", "part")
BESIDE = ("bias", "tmp_index")  # written by Prophesee's software next to recordings
SUFFIXES = {f".{suffix}" for suffix in (*DOCUMENTS, *PICTURES, *PROGRAMS, *ARCHIVES, *BESIDE)}


def find_recordings(folder: Path) -> tuple[list[Path], list[Path]]:
    """All files below a folder, sorted: possible recordings, and files that clearly are not. Skips hidden folders.

    A broken link or a pipe counts as a recording: the user expects one there, and reading it says what is wrong.
    """
    recordings: list[Path] = []
    others: list[Path] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()):
        if not any(part.startswith(".") for part in path.relative_to(folder).parent.parts):
            (others if _is_plainly_another(path) else recordings).append(path)
    return recordings, others


def _is_plainly_another(path: Path) -> bool:
    name, suffix = path.name.lower(), path.suffix.lower()
    return name.startswith(".") or name in NAMES or suffix in SUFFIXES or path.stem.lower() in STEMS


def describe_skipped(skipped: list[Path], folder: Path) -> str:
    """One line about skipped files."""
    first = skipped[0].relative_to(folder)
    if len(skipped) == 1:
        return f"{folder}: skipped 1 file that is not a recording: {first}"
    return f"{folder}: skipped {len(skipped):,} files that are not recordings, such as {first}"
