//! The wire to ranks of other nodes: the UDP socket, its settings, and peers that it does not reach.

pub(crate) mod ack_settings;
pub(crate) mod address;
pub(crate) mod driver;
pub(crate) mod fault_injection;
pub(crate) mod path_mtu;
pub(crate) mod udp;
pub(crate) mod unreachable;
