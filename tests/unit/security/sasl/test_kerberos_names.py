"""Names of users from Kerberos principals, as Kafka's `KerberosShortNamer` makes them."""

import pytest

from odradek.security.sasl.kerberos_names import KerberosNameError, parse_rules, short_name

REALM = "REALM.COM"


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (["DEFAULT"], "App.service-name/example.com@REALM.COM", "App.service-name"),
        (["DEFAULT"], "user@REALM.COM", "user"),
        (["DEFAULT"], "user", "user"),
        (["RULE:[1:$1](App\\..*)s/App\\.(.*)/x/g", "DEFAULT"], "App.s@REALM.COM", "x"),
        (["RULE:[2:$1](App\\..*)s/App\\.//"], "App.svc/h@REALM.COM", "svc"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//"], "ann@OTHER", "ann"),
        (["RULE:[2:$2.$1]"], "ann/host@OTHER", "host.ann"),
        (["RULE:[1:$1]/L"], "Ann@OTHER", "ann"),
        (["RULE:[1:$1]/U"], "ann@OTHER", "ANN"),
        (["RULE:[1:$1](.*)s/a/b/g/U"], "anna@OTHER", "BNNB"),
        (["RULE:[1:$1](.*)s/a/b/"], "anna@OTHER", "bnna"),
        (["RULE:[1:$1]s/(.)nn/$1x$0/"], "ann@OTHER", "axann"),
        (["DEFAULT", "RULE:[1:$1@$0]s/@PARTNER.COM//"], "ann@PARTNER.COM", "ann"),
        (["RULE:[1:$1](x.*)", "RULE:[1:$1-$0]"], "ann@OTHER", "ann-OTHER"),
    ],
)
def test_the_first_rule_that_applies_decides(rules, principal, name):
    assert short_name(principal, parse_rules(tuple(rules)), REALM) == name


@pytest.mark.parametrize(
    ("rules", "principal", "reason"),
    [
        (["DEFAULT"], "ann@OTHER", "no rule of sasl.kerberos.principal.to.local.rules applies"),
        (["RULE:[2:$1]"], "ann@OTHER", "no rule"),
        (["RULE:[1:$1@$0]"], "ann@OTHER", "is not a simple name"),
        (["RULE:[1:$1](.*)s/.*//"], "ann@OTHER", "is not a simple name"),
        (["DEFAULT"], "", "is not a Kerberos principal"),
        (["DEFAULT"], "a/b/c@REALM.COM", "is not a Kerberos principal"),
    ],
)
def test_a_principal_without_a_name_is_refused(rules, principal, reason):
    with pytest.raises(KerberosNameError, match=reason):
        short_name(principal, parse_rules(tuple(rules)), REALM)


@pytest.mark.parametrize(
    "rule", ["", "default", "RULE:[1:$1", "RULE:[3:$1]", "RULE:[1:$2]", "RULE:[1:$1](", "RULE:x",
             "RULE:[1:$1]([a)", "RULE:[1:$1]s/(a)/$2/", "RULE:[1:$1]s/a/b/x"],
)  # fmt: skip
def test_a_rule_that_cannot_be_parsed_is_named(rule):
    with pytest.raises(KerberosNameError, match=r"DEFAULT or RULE|unterminated|no group"):
        parse_rules((rule,))
