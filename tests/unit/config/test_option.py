"""Values are parsed and printed as Kafka does."""

import pytest

from odradek.config.option import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    InvalidConfigError,
    Option,
    at_least,
    between,
    between_or,
    one_of,
)


@pytest.mark.parametrize(
    ("value_type", "text", "value", "shown"),
    [
        (BOOLEAN, " TRUE ", True, "true"),
        (BOOLEAN, "false", False, "false"),
        (INT, " +5 ", 5, "5"),
        (INT, "-2147483648", -(1 << 31), "-2147483648"),
        (INT, "000000000000000000000000007", 7, "7"),
        (SHORT, "32767", 32767, "32767"),
        (LONG, "9223372036854775807", (1 << 63) - 1, "9223372036854775807"),
        (DOUBLE, "1", 1.0, "1.0"),
        (DOUBLE, "1000", 1000.0, "1000.0"),
        (DOUBLE, ".5f", 0.5, "0.5"),
        (DOUBLE, "1e7", 1e7, "1.0E7"),
        (DOUBLE, "123456789", 123456789.0, "1.23456789E8"),
        (DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308, "1.7976931348623157E308"),
        (DOUBLE, "0.0001", 0.0001, "1.0E-4"),
        (DOUBLE, "-Infinity", float("-inf"), "-Infinity"),
        (LIST, " a , b ", ("a", "b"), "a,b"),
        (LIST, "a,,b", ("a", "", "b"), "a,,b"),
        (LIST, "  ", (), ""),
        (STRING, " x y ", "x y", "x y"),
        (PASSWORD, "secret", "secret", "[hidden]"),
    ],
)
def test_texts_are_parsed_and_values_are_printed(value_type, text, value, shown):
    option = Option("x", value_type, None)

    assert option.parse(text) == value
    assert option.render(value) == shown


@pytest.mark.parametrize(
    ("value_type", "text", "why"),
    [
        (BOOLEAN, "yes", "Expected value to be either true or false"),
        (INT, "abc", "Not a number of type INT"),
        (INT, "", "Not a number of type INT"),
        (INT, "1_000", "Not a number of type INT"),
        (INT, "0x5", "Not a number of type INT"),
        (INT, "5L", "Not a number of type INT"),
        (INT, "\u0665", "Not a number of type INT"),  # a digit to str.isdigit()
        (INT, "2147483648", "Not a number of type INT"),
        (SHORT, "32768", "Not a number of type SHORT"),
        (LONG, "9" * 100_000, "Not a number of type LONG"),
        (DOUBLE, "1_0", "Not a number of type DOUBLE"),
        (DOUBLE, "nan", "Not a number of type DOUBLE"),
    ],
)
def test_a_malformed_value_is_refused_in_kafkas_words(value_type, text, why):
    with pytest.raises(InvalidConfigError) as refused:
        Option("x", value_type, None).parse(text)

    assert str(refused.value) == f"Invalid value {text} for configuration x: {why}"


@pytest.mark.parametrize(
    ("value_type", "rule", "text", "wrong", "why"),
    [
        (INT, at_least(14), "5", "5", "Value must be at least 14"),
        (INT, between(1, 17), "99", "99", "Value must be no more than 17"),
        (DOUBLE, between(0, 1), "2", "2.0", "Value must be no more than 1"),
        (INT, between_or(1, 9, -1), "0", "0", "Value must be between 1 and 9 or equal to -1"),
        (STRING, one_of("a", "b"), "c", "c", "String must be one of: a, b"),
        (LIST, one_of("a", "b"), "a,c", "c", "String must be one of: a, b"),
    ],
)
def test_a_rule_refuses_in_kafkas_words(value_type, rule, text, wrong, why):
    with pytest.raises(InvalidConfigError) as refused:
        Option("x", value_type, None, rule=rule).parse(text)

    assert str(refused.value) == f"Invalid value {wrong} for configuration x: {why}"


def test_values_at_the_limit_of_a_rule_are_allowed():
    assert Option("x", INT, 1, rule=between_or(1, 9, -1)).parse("-1") == -1
    assert Option("x", INT, 1, rule=between(1, 17)).parse("17") == 17
    assert Option("x", INT, 1, rule=at_least(14)).parse("14") == 14


def test_an_error_does_not_contain_a_password():
    refusal = Option("x", PASSWORD, None).refusal("secret", "too weak")

    assert "secret" not in str(refusal)
