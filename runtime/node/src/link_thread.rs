//! The thread of a daemon's links.
//!
//! The main loop of a daemon stands still while the kernel or a disk takes its time. So links have a thread of their own, which
//! touches no disk and no process: the others hear that the daemon lives.

use std::io;

use tokio::net::TcpListener;

use crate::event_loop;
use crate::exit::{ExitCode, Failure};

/// Starts it. `serve` gets the sockets that were opened before, and the thread ends with it.
///
/// # Errors
/// There is no thread, or no event loop for it.
pub(crate) fn start(
    listener: TcpListener,
    serve: impl AsyncFnOnce(TcpListener) + Send + 'static,
) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(
            ExitCode::MachineLimits,
            format!(
                "the links have no thread: {error}; raise the limits of processes and open files"
            ),
        )
    };
    let (listener, runtime) = (listener.into_std().map_err(failed)?, event_loop::make()?);
    let builder = std::thread::Builder::new().name("links".to_owned());
    let run = move || {
        if let Err(error) = kumi_net::priority::prefer_this_thread() {
            tracing::info!(%error, "no preference: links wait for their turn on a busy machine");
        }
        tokio::task::LocalSet::new().block_on(&runtime, async {
            match TcpListener::from_std(listener) {
                Ok(listener) => serve(listener).await,
                Err(error) => tracing::error!(%error, "no link can be accepted"),
            }
        });
    };
    builder.spawn(run).map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Nothing of the loop that started it runs meanwhile.
    #[test]
    fn links_are_served_while_the_main_loop_stands_still() {
        let main = event_loop::make().unwrap();
        let listener = main.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async |listener: TcpListener| {
            let (mut stream, _) = listener.accept().await.unwrap();
            let byte = stream.read_u8().await.unwrap();
            stream.write_u8(byte + 1).await.unwrap();
        };
        main.block_on(async { start(listener, serve) }).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(&[6]).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, [7]);
    }
}
