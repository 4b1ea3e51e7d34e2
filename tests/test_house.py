"""The house itself: names nobody else owns, folders that import nothing, no trace of the machine it was built on."""

import re
import subprocess
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
# Spelt in pieces, so that this file is not found by its own search.
TRACES = re.compile(
    r"|".join(
        [
            r"\bpypi" + r"\.org",
            r"pythonhosted" + r"\.org",
            r"registry" + r"\.npmjs",
            r"proxy" + r"\.golang",
            r"(?<![\w.])/(home|root|work|Users)" + r"/\w",
            r"/tmp/" + r"build\b",
        ]
    )
)


def files_in_version_control() -> list[Path]:
    """Every file that is, or is about to be, committed."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_owns_the_name(package: str) -> None:
    """`workers` or `agent` are generic names: whoever installs one beside us would be imported instead of us."""
    assert set(packages_distributions().get(package, [])) <= {PROJECT["project"]["name"]}
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin == str(ROOT / package / "__init__.py")


def test_the_wheel_the_checkers_and_the_import_contracts_cover_the_same_packages() -> None:
    tool = PROJECT["tool"]
    on_disk = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(PACKAGES) == on_disk
    assert set(tool["mypy"]["packages"]) - {"tests"} == on_disk
    assert set(tool["importlinter"]["root_packages"]) == on_disk
    assert set(tool["ruff"]["lint"]["isort"]["known-first-party"]) == on_disk


def test_importing_a_package_does_nothing() -> None:
    inits = [path for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")]
    assert {path.relative_to(ROOT).parts[0] for path in inits} == set(PACKAGES)
    assert [str(path) for path in inits if path.stat().st_size] == []


def test_every_import_contract_is_named_by_a_sentence() -> None:
    names = [contract["name"] for contract in PROJECT["tool"]["importlinter"]["contracts"]]
    assert len(names) == len(set(names)) > 0
    assert [name for name in names if not re.match(r"[A-Z].* .* .*\w$", name)] == []


def test_no_file_names_a_package_registry_or_a_folder_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in files_in_version_control()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if (match := TRACES.search(line))
    ]
    assert found == []


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.name)
def test_a_lock_pins_each_package_by_hash_and_names_no_index(lock: Path) -> None:
    text = lock.read_text()
    packages = re.split(r"\n(?=\S)", text.strip())
    assert [name for name in packages if not re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+", name)] == []
    assert [name for name in packages if "--hash=sha256:" not in name] == []
    assert re.findall(r"https?://|file:|--\w*index|--find-links", text) == []


def test_what_is_pinned_by_hand_is_what_the_lock_holds() -> None:
    """A version that pyproject.toml pins, and a lock that was not made anew, would install one and document another."""
    lock = (ROOT / "requirements/dev.txt").read_text()
    asked = [need for extra in PROJECT["project"]["optional-dependencies"].values() for need in extra]
    asked += PROJECT["project"]["dependencies"]
    pins = [need.split(";")[0].strip() for need in asked if "==" in need.split(";")[0]]
    assert pins
    assert [pin for pin in pins if not re.search(rf"^{re.escape(pin)} ", lock, re.MULTILINE)] == []
    names = [re.split(r"[^\w-]", need)[0].lower().replace("_", "-") for need in asked]
    assert [name for name in names if not re.search(rf"^{re.escape(name)}==", lock, re.MULTILINE)] == []


@pytest.mark.parametrize("name", ["README.md", "LICENSE", "CHANGELOG.md"])
def test_the_papers_are_there(name: str) -> None:
    assert (ROOT / name).read_text().strip()


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert re.search(r"^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
