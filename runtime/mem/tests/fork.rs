//! A child of a rank's process: dropping its copies takes nothing from the rank.
#![cfg(not(miri))] // There is one process.

mod common;

use std::sync::mpsc;
use std::time::Duration;

use kumi_mem::Error;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn what_a_fork_drops_the_rank_keeps() {
    let name = "what_a_fork_drops_the_rank_keeps";
    if !common::is_rank() {
        let job = common::Job { layout: &[1], ..common::Job::default() };
        common::start(name, &job, |_| {}).finish();
        return;
    }
    let context = kumi_mem::Context::init().expect("init");
    context.interruptible(Duration::from_millis(5), || false).expect("a thread");
    let window = context.window(4096).expect("window");
    let completion = context.completion().expect("completion");
    let (out, signals) = mpsc::channel();
    let handler = move |signal: kumi_mem::Signal<'_>| out.send(signal.data.len()).expect("send");
    window.on_signal(1024, 64, handler).expect("port");
    let fifo = window.fifo(0, 64, 0).expect("FIFO");
    window.put(0, 2048, b"kept").expect("put");
    window.append(0, 0, b"record").expect("append");
    // SAFETY: the child only drops, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = [
            context.send(0, 1, b"never").err(),
            context.recv_vec(kumi_mem::Source::Any, kumi_mem::Tag::Any).err(),
            context.flush(0).err(),
            context.flush_all().err(),
        ];
        if !refused.iter().all(|error| matches!(error, Some(Error::Forked))) {
            // SAFETY: it ends here.
            unsafe { libc::_exit(2) };
        }
        drop(fifo);
        drop(completion);
        drop(window);
        let right = matches!(context.finalize(), Err(Error::Forked));
        // SAFETY: it ends here.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = -1;
    // SAFETY: the number is this function's.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(fifo.pop_vec().expect("record"), (0, b"record".to_vec()));
    let mut kept = [0; 4];
    window.get(0, 2048, &mut kept).expect("get");
    assert_eq!(&kept, b"kept");
    window.signal(0, 1024, b"signal").expect("signal");
    assert_eq!(signals.recv_timeout(PATIENCE).expect("signal"), 6);
    assert_eq!(completion.done().expect("done"), 0);
    drop(fifo);
    drop((completion, window));
    context.finalize().expect("finalize");
    std::process::exit(0);
}
