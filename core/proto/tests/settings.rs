//! Settings: the extremes that are permitted, and the first beyond them, named in the error.

use kumi_proto::{ChannelKey, Config, ConfigError, Endpoint, SealKey};

fn check(change: impl FnOnce(&mut Config)) -> Result<(), ConfigError> {
    let mut config = Config::default();
    change(&mut config);
    config.check()
}

#[test]
fn sizes_may_be_as_small_and_as_large_as_documented() {
    for max_datagram in [64, 65_507] {
        assert_eq!(check(|c| c.max_datagram = max_datagram), Ok(()));
    }
    for window in [2, 1_024] {
        assert_eq!(check(|c| c.window = window), Ok(()));
    }
    assert_eq!(check(|c| (c.safe_datagram, c.least_datagram) = (64, 64)), Ok(()));
    assert_eq!(check(|c| c.least_datagram = c.safe_datagram), Ok(()));
    for least in [0, 63, Config::default().safe_datagram + 1] {
        let refused = Err(ConfigError::LeastDatagram(least));
        assert_eq!(check(|c| c.least_datagram = least), refused);
    }
    assert_eq!(check(|c| c.lend_least = 0), Err(ConfigError::LendLeast));
    assert_eq!(check(|c| (c.rings, c.lend_least, c.ack_every) = (1, 1, 1)), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn an_ack_of_the_whole_window_may_fill_a_packet() {
    // A header of 32 bytes and a bit for each packet: 256 packets in 64 bytes.
    assert_eq!(check(|c| (c.max_datagram, c.window) = (64, 256)), Ok(()));
    assert_eq!(check(|c| (c.max_datagram, c.window) = (160, 1_024)), Ok(()));
    let refused = Err(ConfigError::Window(1_024));
    assert_eq!(check(|c| (c.max_datagram, c.window) = (159, 1_024)), refused);
    // An encrypted one has 20 bytes more.
    let encrypted = |max_datagram| {
        let config = Config { max_datagram, window: 1_024, ..Config::default() };
        Endpoint::encrypted(config, 0, 2, ChannelKey(1), &SealKey([1; 16])).map(|_| ())
    };
    assert_eq!(encrypted(180), Ok(()));
    assert_eq!(encrypted(179), Err(ConfigError::Window(1_024)));
}

#[test]
fn times_may_be_equal_and_must_not_contradict_each_other() {
    let equal = |c: &mut Config| {
        (c.min_rto, c.initial_rto, c.max_rto) = (500, 500, 500);
        (c.ack_delay, c.late_grace) = (500, 500);
        (c.full_retry, c.full_retry_max) = (700, 700);
    };
    assert_eq!(check(equal), Ok(()));
    assert_eq!(check(|c| c.ack_delay = 0), Ok(()));
    let refused = |low, high| Err(ConfigError::Times { low, high });
    assert_eq!(check(|c| c.max_rto = c.min_rto - 1), refused("min_rto", "max_rto"));
    assert_eq!(check(|c| c.initial_rto = c.max_rto + 1), refused("initial_rto", "max_rto"));
    assert_eq!(check(|c| c.initial_rto = 0), refused("initial_rto", "max_rto"));
    assert_eq!(check(|c| c.ack_delay = c.min_rto + 1), refused("ack_delay", "min_rto"));
    assert_eq!(check(|c| c.late_grace = c.max_rto + 1), refused("late_grace", "max_rto"));
    let pauses = refused("full_retry", "full_retry_max");
    assert_eq!(check(|c| c.full_retry = c.full_retry_max + 1), pauses);
}

#[test]
fn a_job_of_one_rank_is_a_job() {
    let endpoint = Endpoint::new(Config::default(), 0, 1, ChannelKey(1)).unwrap();
    assert_eq!((endpoint.me(), endpoint.ranks(), endpoint.room(0)), (0, 1, 0));
    let absent = Endpoint::new(Config::default(), 0, 0, ChannelKey(1)).unwrap_err();
    assert_eq!(absent, ConfigError::Rank { me: 0, ranks: 0 });
}
