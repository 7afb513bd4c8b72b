//! Parses and prints durations such as `30d`, `12h` or `1d12h`.

use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

/// A duration from the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) SignedDuration);

/// The units in seconds, largest first. A year has 365 days, as everywhere in Perennial.
const UNITS: [(char, i64); 6] = [('y', 31_536_000), ('w', 604_800), ('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// The longest accepted duration, so that adding it to a date never overflows.
const LONGEST_YEARS: i64 = 100;

/// Formats a duration with its two largest units.
pub(crate) fn text(span: SignedDuration) -> String {
    let seconds = span.as_secs().abs();
    let sign = if span.is_negative() { "-" } else { "" };
    let (days, hours, minutes) = (seconds / 86_400, seconds % 86_400 / 3600, seconds % 3600 / 60);
    let two = |large: i64, unit: &str, small: i64, smaller: &str| match small {
        0 => format!("{sign}{large}{unit}"),
        _ => format!("{sign}{large}{unit}{small}{smaller}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{sign}{seconds}s"),
        (0, 0, minutes) => two(minutes, "m", seconds % 60, "s"),
        (0, hours, minutes) => two(hours, "h", minutes, "m"),
        // Hours do not matter in a month or more.
        (30.., _, _) => format!("{sign}{days}d"),
        (days, hours, _) => two(days, "d", hours, "h"),
    }
}

/// Formats the time between two instants as `in 2d` or `2d ago`.
pub(crate) fn from_to(from: Timestamp, to: Timestamp) -> String {
    match from.duration_until(to) {
        span if span.is_negative() => format!("{} ago", text(-span)),
        span => format!("in {}", text(span)),
    }
}

/// Formats an instant, to the second.
pub(crate) fn instant(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats the date of an instant.
pub(crate) fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wrong = || format!("{text:?} is not a duration: expected numbers with units, such as 30d, 12h or 1d12h");
        let mut seconds: i64 = 0;
        let mut rest = text;
        while let Some(end) = rest.find(|letter: char| !letter.is_ascii_digit()) {
            let number: i64 = rest[..end].parse().map_err(|_| wrong())?;
            let letter = rest[end..].chars().next().ok_or_else(wrong)?;
            let (_, length) = UNITS.into_iter().find(|(unit, _)| *unit == letter).ok_or_else(wrong)?;
            seconds = number.checked_mul(length).and_then(|more| seconds.checked_add(more)).ok_or_else(wrong)?;
            rest = &rest[end + letter.len_utf8()..];
        }
        if text.is_empty() || !rest.is_empty() {
            return Err(wrong());
        }
        if seconds > LONGEST_YEARS * UNITS[0].1 {
            return Err(format!("{text:?} is longer than {LONGEST_YEARS} years"));
        }
        Ok(Span(SignedDuration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_printed() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = text.parse::<Span>().map(|span| super::text(span.0));
            let wrong = format!("{text:?} {}", expected.err().unwrap_or_default());
            assert_eq!(found, expected.map(ToOwned::to_owned).map_err(|_| wrong));
        };
        let no_span = "is not a duration: expected numbers with units, such as 30d, 12h or 1d12h";
        check("7d", Ok("7d"));
        check("36h", Ok("1d12h"));
        check("1d12h", Ok("1d12h"));
        check("90m", Ok("1h30m"));
        check("61s", Ok("1m1s"));
        check("59s", Ok("59s"));
        check("2w", Ok("14d"));
        check("1y", Ok("365d"));
        check("30d5h", Ok("30d"));
        check("0s", Ok("0s"));
        check("100y", Ok("36500d"));
        for text in ["", "7", "d", "7 d", "-7d", "7d3", "7x", "99999999999999999999d", "9999999999999999y", "7ä"] {
            check(text, Err(no_span));
        }
        check("101y", Err("is longer than 100 years"));
    }

    #[test]
    fn a_past_instant_is_printed_with_ago() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (one, two) = (at("2026-01-01T00:00:00Z"), at("2026-01-03T06:00:00Z"));
        assert_eq!((from_to(one, two), from_to(two, one)), ("in 2d6h".to_owned(), "2d6h ago".to_owned()));
    }
}
