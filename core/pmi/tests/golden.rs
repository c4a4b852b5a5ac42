//! Bytes of the messages between a daemon and a server. A later daemon goes on with servers of an earlier build, so what
//! changes here is another version.

use kumi_pmi::frame::{FrameBuffer, encode};
use kumi_pmi::message::{Exchange, FromServer, ServerReport, ToServer, VERSION};

const EXCHANGE: Exchange = Exchange { group: 300, number: 2 };

fn told(what: ServerReport) -> FromServer {
    FromServer::Report { number: 5, what }
}

#[test]
fn messages_have_the_form_of_version_1() {
    assert_eq!(VERSION, 1);
    let to: [(ToServer, &[u8]); 5] = [
        (
            ToServer::Exchanged { exchange: EXCHANGE, data: vec![vec![7], vec![]] },
            &[1, 0xac, 2, 2, 2, 1, 7, 0],
        ),
        (ToServer::Relayed { from: 1, data: vec![9] }, &[2, 1, 1, 9]),
        (ToServer::Ended { rank: 3 }, &[3, 3]),
        (ToServer::Resume { heard: 300 }, &[4, 0xac, 2]),
        (ToServer::Heard { number: 1 }, &[5, 1]),
    ];
    for (message, bytes) in to {
        check(&message, bytes);
    }
    let text = || "no".to_owned();
    let from: [(FromServer, &[u8]); 11] = [
        (FromServer::Failed(text()), &[1, 2, b'n', b'o']),
        (
            FromServer::Exchange { exchange: EXCHANGE, places: vec![0, 1], data: vec![8] },
            &[2, 0xac, 2, 2, 2, 0, 1, 1, 8],
        ),
        (FromServer::Relay { to: 1, data: vec![9] }, &[3, 1, 1, 9]),
        (told(ServerReport::Joined { rank: 3 }), &[4, 5, 0, 3]),
        (told(ServerReport::Finalized { rank: 3 }), &[4, 5, 1, 3]),
        (
            told(ServerReport::Aborted { rank: 3, code: -1, message: text() }),
            &[4, 5, 2, 3, 1, 2, b'n', b'o'],
        ),
        (told(ServerReport::Note { rank: 3, text: text() }), &[4, 5, 3, 3, 2, b'n', b'o']),
        (told(ServerReport::Broken(text())), &[4, 5, 4, 2, b'n', b'o']),
        (FromServer::Ended { rank: 3 }, &[5, 3]),
        (
            FromServer::ExchangeAgain {
                exchange: EXCHANGE,
                places: vec![0],
                data: vec![],
                over: true,
            },
            &[6, 0xac, 2, 2, 1, 0, 0, 1],
        ),
        (FromServer::Resumed { without_pmix: Some(text()) }, &[7, 1, 2, b'n', b'o']),
    ];
    for (message, bytes) in from {
        check(&message, bytes);
    }
}

fn check<T>(message: &T, bytes: &[u8])
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let length = u32::try_from(bytes.len()).expect("it is short").to_le_bytes();
    let frame = [&length, bytes].concat();
    assert_eq!(encode(message).expect("it is short"), frame, "{message:?}");
    let mut buffer = FrameBuffer::default();
    buffer.extend(&frame);
    assert_eq!(buffer.take::<T>().expect("a message").as_ref(), Some(message));
}
