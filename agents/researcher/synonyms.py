"""Words that stand for one another in questions about documents."""

from __future__ import annotations

from agents.documents.words import stem

_GROUPS = """
start begin launch boot
stop end terminate halt quit shutdown finish
delete remove drop erase
create make made build built generate
change modify edit update alter
error failure exception fault
fail crash die kill break
die dies dead death kill
fast quick speed performance rapid
large big huge size
maximum max limit most largest upper
minimum min least smallest lower
option setting configuration parameter preference
configure set
argument parameter
directory folder
search find found locate look
show display print list view
install setup
choose chose chosen select selected pick choice decide decision rather prefer
allow permit permitted may
forbid forbidden deny refuse reject prohibit disallow
wait delay pause sleep
retry repeat again
copy duplicate clone
save store persist keep
keep retain retention kept hold held
keep kept stay stays
read load open parse
send sent publish emit post submit upload
receive consume accept
cost price fee charge pay paid
author wrote written creator write
purpose goal aim
require requirement prerequisite required
owner own owns owned
function method
license licence licensed
phone telephone
email mail
vacation holiday leave
protect secure security guard
encrypt encryption encrypted cipher
password passphrase credential
restart resume recover
recover restore recovery
backup snapshot
broken broke damaged damage corrupt corrupted malformed
wrong invalid incorrect
empty blank
compare difference differ
guarantee ensure promise
job task
test check verify
duration time timeout
deadline due expire expiry
interval every period
frequency often every
responsible charge owner
contact reach call
repair fix mend
clean cleaning wash
order sequence
ordering order sequence
upgrade update
disable off
enable activate on
replace swap exchange substitute
count number amount
weight weigh heavy kilogram
height tall high
temperature heat degree
old age
forbid disallow
voltage volt
lose lost loss
begin began begun start
run ran running execute
teach taught learn
know known
tell told say said
stand stood
notify notification alert warn warning
link connect connection connected attach plug
speak talk communicate communication
name called named
supported support supports
language languages
"""


def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for line in _GROUPS.strip().splitlines():
        group = [stem(word) for word in line.split()]
        for word in group:
            table.setdefault(word, {}).update(dict.fromkeys(other for other in group if other != word))
    return {word: tuple(others) for word, others in table.items()}


_BY_STEM = _table()
_WORDS_BY_STEM: dict[str, str] = {}
for _word in _GROUPS.split():
    _WORDS_BY_STEM.setdefault(stem(_word), _word)


def synonyms(word_stem: str) -> tuple[str, ...]:
    """Stems that may stand for `word_stem`."""
    return _BY_STEM.get(word_stem, ())


def word_of(word_stem: str) -> str:
    """A whole word for a stem out of `synonyms`, for people and for the search."""
    return _WORDS_BY_STEM.get(word_stem, word_stem)
