//! Addresses of endpoints, as programs exchange them: they have the size and family of `struct sockaddr_in`, which MPI libraries
//! know.
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..2 | `AF_INET`, in the machine's order |
//! | 2..4 | number of the endpoint at its rank, big-endian, where a port would be |
//! | 4..8 | rank, big-endian, where the address would be |
//! | 8..16 | number of the job, big-endian |

use crate::operation::Address;

/// Bytes of an address.
pub const BYTES: usize = 16;

const FAMILY: u16 = libc::AF_INET as u16;

/// The bytes of an endpoint of this job.
#[must_use]
pub fn encode(address: Address, job: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[0..2].copy_from_slice(&FAMILY.to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.endpoint.to_be_bytes());
    bytes[4..8].copy_from_slice(&address.rank.to_be_bytes());
    bytes[8..16].copy_from_slice(&job.to_be_bytes());
    bytes
}

/// The endpoint, and the job it belongs to. None if the family is another.
#[must_use]
pub fn decode(bytes: [u8; BYTES]) -> Option<(Address, u64)> {
    let [f0, f1, e0, e1, r0, r1, r2, r3, job @ ..] = bytes;
    if u16::from_ne_bytes([f0, f1]) != FAMILY {
        return None;
    }
    let endpoint = u16::from_be_bytes([e0, e1]);
    let rank = u32::from_be_bytes([r0, r1, r2, r3]);
    Some((Address { rank, endpoint }, u64::from_be_bytes(job)))
}

/// The endpoint if it is one of this job, which has so many ranks.
#[must_use]
pub fn of_job(bytes: [u8; BYTES], job: u64, ranks: u32) -> Option<Address> {
    decode(bytes)
        .filter(|(address, of)| *of == job && address.rank < ranks)
        .map(|(address, _)| address)
}

/// For people.
#[must_use]
pub fn text(bytes: [u8; BYTES]) -> Option<String> {
    decode(bytes)
        .map(|(address, job)| format!("kumi://{job:x}/{}/{}", address.rank, address.endpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Address = Address { rank: 0x0102_0304, endpoint: 0x0506 };

    #[test]
    fn bytes_and_addresses_are_each_others() {
        let bytes = encode(ADDRESS, 0x1122_3344_5566_7788);
        assert_eq!(bytes[2..], [5, 6, 1, 2, 3, 4, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(decode(bytes), Some((ADDRESS, 0x1122_3344_5566_7788)));
        assert_eq!(text(bytes).unwrap(), "kumi://1122334455667788/16909060/1286");
    }

    #[test]
    fn strangers_are_refused() {
        let bytes = encode(Address { rank: 3, endpoint: 0 }, 7);
        assert!(of_job(bytes, 7, 4).is_some());
        assert!(of_job(bytes, 8, 4).is_none(), "another job");
        assert!(of_job(bytes, 7, 3).is_none(), "a rank that is not there");
        let mut family = bytes;
        family[0] ^= 1;
        assert!(of_job(family, 7, 4).is_none(), "another family");
    }
}
