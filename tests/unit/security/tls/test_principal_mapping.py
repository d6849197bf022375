"""`ssl.principal.mapping.rules`, with the examples of Kafka's documentation and of KIP-371."""

import pytest

from odradek.security.tls.principal_mapping import PrincipalMapping
from odradek.security.tls.stores import TlsError

RULES = ", ".join([
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
    "DEFAULT",
])  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_decides(subject, name):
    assert PrincipalMapping(RULES).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Duke"),
        ("  ,, DEFAULT,, ", "CN=Duke"),
        ("RULE:^CN=(.*)$/$1/", "Duke"),
        ("RULE:^CN=(.*)$/$1/L,DEFAULT", "duke"),
        ("RULE:^CN=(.*)$/$1/U , DEFAULT", "DUKE"),
        ("RULE:nothing/$1/, RULE:CN=(D)(uke)/$2$1/", "ukeD"),
        # A group that does not exist is literal, and digits behind a number are, too.
        ("RULE:CN=(D)(uke)/$1@$3/", "D@$3"),
        ("RULE:CN=(D)(uke)/$12/", "D2"),
        ("RULE:CN=(?<first>D)(uke)/${first}.$2/", "D.uke"),
        ("RULE:CN=(D)uke/$0/", "CN=Duke"),
        # A slash and a dollar sign are escaped.
        (r"RULE:CN=(D)uke/a\/\$1/", "a/$1"),
        # The pattern is replaced wherever it matches, the empty end included.
        ("RULE:.*/x/", "xx"),
        ("RULE:CN=([^,ADEFLTU,]+)(,.*|$)/$1/, DEFAULT", "CN=Duke"),
    ],
)
def test_rules(rules, name):
    assert PrincipalMapping(rules).name_of("CN=Duke") == name


def test_a_comma_within_a_name():
    rules = r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT"
    subject = r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz"
    assert PrincipalMapping(rules).name_of(subject) == r"Tkac\, Adam"


@pytest.mark.parametrize("rules", [
    "default",
    "DEFAUL",
    "DEFAULT/L",
    "DEFAULT/U",
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
    "RULE:^CN=(.*$/$1/",
])  # fmt: skip
def test_what_is_not_a_rule_is_refused(rules):
    with pytest.raises(TlsError, match="is not a"):
        PrincipalMapping(rules)


@pytest.mark.parametrize(
    "rules", ["", ", ,", "RULE:^OU=(.*)$/$1/", "RULE:CN=Duke/$1/", "RULE:CN=Duke/$/"]
)
def test_a_name_without_a_principal_is_refused(rules):
    with pytest.raises(TlsError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules).name_of("CN=Duke")
