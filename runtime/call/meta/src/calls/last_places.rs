//! Where calls were placed last, for users who look for the logs of calls whose server is another process by now.

use std::collections::BTreeMap;

use kumi_broker::Time;
use kumi_call_wire::logs::LastPlace;

use super::super::dispatcher::CurrentAttempt;

/// Most calls whose places are remembered: the latest ones.
const MOST: usize = 16_384;

/// A place.
#[derive(Debug)]
struct Place {
    user: String,
    name: String,
    address: String,
    at: Time,
}

/// The last places of the latest calls, by number.
#[derive(Debug, Default)]
pub struct LastPlaces(BTreeMap<u64, Place>);

impl LastPlaces {
    /// Notes that an attempt of a user's call begins.
    pub fn note(&mut self, user: &str, attempt: &CurrentAttempt, at: Time) {
        let CurrentAttempt { name, address, .. } = attempt;
        let (user, name, address) = (user.to_owned(), name.clone(), address.clone());
        self.0.insert(attempt.ticket.call, Place { user, name, address, at });
        if self.0.len() > MOST {
            self.0.pop_first();
        }
    }

    /// Where a call of this user was placed last.
    pub fn of(&self, user: &str, call: u64, now: Time) -> Option<LastPlace> {
        let place = self.0.get(&call).filter(|place| place.user == user)?;
        let ago_ms = now.0.saturating_sub(place.at.0) / (Time::SECOND / 1000);
        Some(LastPlace { name: place.name.clone(), address: place.address.clone(), ago_ms })
    }
}

#[cfg(test)]
mod tests {
    use kumi_broker::ServerId;
    use kumi_rpc::Ticket;

    use super::*;

    #[test]
    fn the_last_place_of_a_call_is_told_to_its_user_only() {
        let attempt = |call, attempt, address: &str| {
            let ticket = Ticket { call, attempt };
            CurrentAttempt::new(ticket, ServerId(1), address.to_owned(), "a".to_owned())
        };
        let second = |count| Time(count * Time::SECOND);
        let mut places = LastPlaces::default();
        places.note("ada", &attempt(7, 1, "h:1"), second(1));
        places.note("ada", &attempt(7, 2, "h:2"), second(2));
        let place = places.of("ada", 7, second(5)).expect("its place");
        assert_eq!((place.address.as_str(), place.ago_ms), ("h:2", 3000));
        assert_eq!(places.of("zoe", 7, second(5)), None);
        for call in 0..=MOST as u64 {
            places.note("zoe", &attempt(8 + call, 1, "h:1"), second(9));
        }
        assert_eq!((places.0.len(), places.of("ada", 7, second(9))), (MOST, None));
    }
}
