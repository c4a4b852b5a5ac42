//! What Kumi reads of a certificate: when it was issued, by its serial number, and when it ends.
//!
//! Only certificates that the TLS library has verified, or of the cluster's own folder, are read here.

use time::{Date, Month, PrimitiveDateTime, Time};

/// A tag of DER.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Times of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateTimes {
    /// When it was issued, in microseconds since the epoch; 0 if its authority did not number it by the time.
    pub issued_us: u64,
    /// Its end, in seconds since the epoch.
    pub until: i64,
}

impl CertificateTimes {
    /// Reads a certificate in DER; `None` if it is none.
    #[must_use]
    pub fn read(der: &[u8]) -> Option<Self> {
        let (certificate, _) = element(der, SEQUENCE)?;
        let (mut fields, _) = element(certificate, SEQUENCE)?;
        if let Some((_, rest)) = element(fields, VERSION) {
            fields = rest;
        }
        let (serial, fields) = element(fields, INTEGER)?;
        let (_algorithm, fields) = element(fields, SEQUENCE)?;
        let (_issuer, fields) = element(fields, SEQUENCE)?;
        let (validity, _) = element(fields, SEQUENCE)?;
        let (_, _from, validity) = any_element(validity)?;
        let (tag, until, _) = any_element(validity)?;
        Some(Self { issued_us: number(serial).unwrap_or(0), until: seconds(tag, until)? })
    }
}

/// Tag and content of the first element, and what comes behind it.
fn any_element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if !(1..=4).contains(&count) || rest.len() < count {
            return None;
        }
        let (digits, rest) = rest.split_at(count);
        (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
    };
    rest.split_at_checked(length).map(|(content, rest)| (tag, content, rest))
}

fn element(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = any_element(bytes)?;
    (tag == wanted).then_some((content, rest))
}

/// An integer that is not negative and not too large.
fn number(bytes: &[u8]) -> Option<u64> {
    let digits = &bytes[bytes.iter().take_while(|&&digit| digit == 0).count()..];
    let fits = digits.len() <= 8 && bytes.first().is_some_and(|&first| first < 0x80);
    fits.then(|| digits.iter().fold(0, |value, &digit| value << 8 | u64::from(digit)))
}

/// A time in seconds since the epoch: `YYMMDDhhmmssZ`, or with four digits of the year.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let year: i32 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let part = |at: usize| rest.get(2 * at..2 * at + 2)?.parse::<u8>().ok();
    let date = Date::from_calendar_date(year, Month::try_from(part(0)?).ok()?, part(1)?).ok()?;
    let time = Time::from_hms(part(2)?, part(3)?, part(4)?).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_nonsense_is_none() {
        assert_eq!(seconds(UTC_TIME, b"700101000001Z"), Some(1));
        assert_eq!(seconds(UTC_TIME, b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(seconds(GENERALIZED_TIME, b"20500101000000Z"), Some(2_524_608_000));
        for wrong in [&b"701301000001Z"[..], b"70010100000Z", b"", b"7001010000011"] {
            assert_eq!(seconds(UTC_TIME, wrong), None);
        }
        assert_eq!(number(&[0, 0xff, 1]), Some(0xff01));
        assert_eq!((number(&[0x80]), number(&[1; 20])), (None, None));
    }

    #[test]
    fn a_made_certificate_is_read_and_its_pieces_are_not() {
        let mut params = rcgen::CertificateParams::new(vec!["x.kumi".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2061, 2, 3);
        params.serial_number = Some(1_800_000_000_000_007_u64.into());
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let der = made.der();
        let times = CertificateTimes::read(der).unwrap();
        assert_eq!(times.issued_us, 1_800_000_000_000_007);
        assert_eq!(times.until, params.not_after.unix_timestamp());
        for length in 0..der.len() {
            assert_eq!(CertificateTimes::read(&der[..length]), None);
        }
        params.serial_number = None;
        let old = params.self_signed(&key).unwrap();
        assert_eq!(CertificateTimes::read(old.der()).unwrap().issued_us, 0);
    }
}
