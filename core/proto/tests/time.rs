//! Timers: their due times, and the effect of a stop of the own rank.

use kumi_proto::{ChannelKey, Config, ConfigError, Delivery, Endpoint, Rank, Sink};

struct Count(u64);

impl Sink for Count {
    fn deliver(&mut self, _: Rank, _: &[u8]) -> Delivery {
        self.0 += 1;
        Delivery::Taken
    }
}

fn endpoint(me: Rank) -> Endpoint {
    Endpoint::new(Config::default(), me, 2, ChannelKey(1)).unwrap()
}

fn polled(endpoint: &mut Endpoint, now: u64) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(now) {
        out.extend(transmit.datagrams().map(<[u8]>::to_vec));
    }
    out
}

#[test]
fn a_timeout_sends_a_probe_and_doubles() {
    let config = Config::default();
    let mut a = endpoint(0);
    a.send(100, 1, &[b"x"]).unwrap();
    assert_eq!(a.next_timeout(), None, "nothing is on the wire yet");
    assert_eq!(polled(&mut a, 100).len(), 1);
    let mut wait = config.initial_rto;
    let mut now = 100;
    for round in 1..12 {
        assert_eq!(a.next_timeout(), Some(now + wait));
        a.handle_timeout(now + wait - 1);
        assert!(polled(&mut a, now + wait - 1).is_empty());
        now += wait;
        a.handle_timeout(now);
        let out = polled(&mut a, now);
        assert_eq!((out.len(), out[0].len()), (1, 32), "a probe, no data");
        assert_eq!(a.counters().probes_out, round);
        wait = (2 * wait).min(config.max_rto);
    }
    assert_eq!((a.counters().resends, a.counters().timeouts_postponed), (0, 0));
}

#[test]
fn a_timeout_found_late_is_postponed_once() {
    let config = Config::default();
    let mut a = endpoint(0);
    a.send(0, 1, &[b"x"]).unwrap();
    polled(&mut a, 0);
    let late = config.initial_rto + config.late + 1;
    a.handle_timeout(late);
    assert!(polled(&mut a, late).is_empty());
    assert_eq!(a.next_timeout(), Some(late + config.late_grace));
    // Stopped again just then: this time it expires, or it might never.
    let later = late + config.late_grace + config.late + 1;
    a.handle_timeout(later);
    assert_eq!(polled(&mut a, later).len(), 1);
    assert_eq!((a.counters().timeouts, a.counters().timeouts_postponed), (1, 1));
}

#[test]
fn a_timeout_found_a_little_late_expires() {
    let config = Config::default();
    let mut a = endpoint(0);
    a.send(0, 1, &[b"x"]).unwrap();
    polled(&mut a, 0);
    let now = config.initial_rto + config.late;
    a.handle_timeout(now);
    assert_eq!((a.counters().timeouts, a.counters().timeouts_postponed), (1, 0));
}

#[test]
fn an_ack_stops_the_timer_even_after_a_stop() {
    let (mut a, mut b) = (endpoint(0), endpoint(1));
    a.send(0, 1, &[b"x"]).unwrap();
    let out = polled(&mut a, 0);
    b.handle_datagram(20, &out[0], &mut Count(0));
    let due = b.next_timeout().unwrap();
    b.handle_timeout(due);
    let ack = polled(&mut b, 300);
    let now = 10_000_000;
    a.handle_datagram(now, &ack[0], &mut Count(0));
    a.handle_timeout(now);
    assert!(polled(&mut a, now).is_empty());
    assert_eq!(a.next_timeout(), None);
    assert_eq!((a.counters().timeouts, a.counters().timeouts_postponed), (0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
fn an_ack_is_sent_every_so_many_packets() {
    let (mut a, mut b) = (endpoint(0), endpoint(1));
    let mut sink = Count(0);
    for now in 0..160 {
        a.send(now, 1, &[b"x"]).unwrap();
        for datagram in polled(&mut a, now) {
            b.handle_datagram(now, &datagram, &mut sink);
        }
        for datagram in polled(&mut b, now) {
            a.handle_datagram(now, &datagram, &mut Count(0));
        }
    }
    assert_eq!((sink.0, b.counters().acks_out), (160, 160 / 16));
}

#[test]
fn acks_held_back_can_be_hurried() {
    let (mut a, mut b) = (endpoint(0), endpoint(1));
    a.send(0, 1, &[b"x"]).unwrap();
    b.handle_datagram(5, &polled(&mut a, 0)[0], &mut Count(0));
    assert!(polled(&mut b, 5).is_empty());
    b.send_delayed_acks();
    let acks = polled(&mut b, 5);
    assert_eq!(acks.len(), 1);
    a.handle_datagram(10, &acks[0], &mut Count(0));
    assert!(a.all_flushed());
    b.send_delayed_acks();
    assert!(polled(&mut b, 5).is_empty());
}

#[test]
fn an_answer_to_a_probe_across_a_stop_gives_no_round_trip() {
    let config = Config::default();
    let (mut a, mut b) = (endpoint(0), endpoint(1));
    a.send(0, 1, &[b"x"]).unwrap();
    a.request_ack(1);
    let out = polled(&mut a, 0);
    assert_eq!(out.len(), 2);
    for datagram in &out {
        b.handle_datagram(5, datagram, &mut Count(0));
    }
    let answer = polled(&mut b, 5);
    // Stopped for a while, longer than the timeout: the next one is still the initial one.
    let now = 100_000;
    a.handle_datagram(now, &answer[0], &mut Count(0));
    assert!(a.all_flushed());
    a.send(now + 1, 1, &[b"y"]).unwrap();
    polled(&mut a, now + 1);
    a.handle_timeout(now + 1);
    assert_eq!(a.next_timeout(), Some(now + 1 + config.initial_rto));
}

#[test]
fn wrong_settings_are_refused() {
    let refused = |config: Config| Endpoint::new(config, 0, 2, ChannelKey(0)).unwrap_err();
    let default = Config::default;
    assert_eq!(refused(Config { max_datagram: 63, ..default() }), ConfigError::MaxDatagram(63));
    let long = 65_508;
    assert_eq!(refused(Config { max_datagram: long, ..default() }), ConfigError::MaxDatagram(long));
    for window in [0, 1, 3, 100, 2_048] {
        assert_eq!(refused(Config { window, ..default() }), ConfigError::Window(window));
    }
    assert_eq!(refused(Config { safe_datagram: 63, ..default() }), ConfigError::SafeDatagram(63));
    let tight = Config { max_datagram: 64, window: 512, ..default() };
    assert_eq!(refused(tight), ConfigError::Window(512));
    assert_eq!(refused(Config { rings: 0, ..default() }), ConfigError::Rings);
    assert_eq!(refused(Config { ack_every: 0, ..default() }), ConfigError::AckEvery);
    for config in [
        Config { min_rto: 0, ..default() },
        Config { max_rto: 1_000, ..default() },
        Config { ack_delay: 3_000, ..default() },
        Config { full_retry: 0, ..default() },
        Config { late_grace: 0, ..default() },
    ] {
        assert!(matches!(refused(config), ConfigError::Times { .. }));
    }
    let absent = Endpoint::new(default(), 2, 2, ChannelKey(0)).unwrap_err();
    assert_eq!(absent, ConfigError::Rank { me: 2, ranks: 2 });
}
