//! The right to drive a channel: whose it is, and for how long.

use kumi_net::{
    AnswerSender, Attachment, Channel, ChannelError, ChannelSettings, CopySource, Delivery, Guard,
    Handler, SpinMode, Wait,
};

/// A layer above that knows whose it is.
struct Named(&'static str);

impl Handler for Named {
    fn frame<S: CopySource>(&mut self, _: &Attachment, _: u32, _: S) -> Delivery {
        Delivery::Taken
    }
    fn answer(&mut self, _: usize, _: &mut AnswerSender<'_>) -> Result<(), ChannelError> {
        Ok(())
    }
    fn owes_answers(&self) -> bool {
        false
    }
    fn unread(&self) -> u64 {
        0
    }
    fn refused(&self) -> u64 {
        0
    }
}

fn channel(name: &'static str) -> Channel<Named> {
    let attachment = Attachment::singleton(1 << 20).expect("attachment");
    let settings = ChannelSettings { spin: SpinMode::Blind, handler: None };
    Channel::start(attachment, None, settings, Named(name)).expect("start")
}

fn name(guard: &mut Guard<'_, Named>) -> &'static str {
    guard.handler().0
}

/// A guard that lives as long as any, which an attempt can put into the place of its own.
fn lasting_guard(name: &'static str) -> (&'static Channel<Named>, Guard<'static, Named>) {
    let channel: &'static Channel<Named> = Box::leak(Box::new(channel(name)));
    (channel, channel.lock().expect("lock"))
}

#[test]
fn a_wait_goes_on_with_its_own_channel_whatever_an_attempt_does_with_the_guard() {
    let first = channel("first");
    let (second, other) = lasting_guard("second");
    let mut others = Some(other);
    let mut turns = Vec::new();
    let result = first.wait(Wait::Frames, |guard| {
        turns.push(name(guard));
        if let Some(mut other) = others.take() {
            std::mem::swap(guard, &mut other);
            // Each can be used where it is now.
            assert_eq!((name(guard), name(&mut other)), ("second", "first"));
        }
        Ok::<_, ChannelError>((turns.len() == 2).then_some(()))
    });
    result.expect("two turns");
    assert_eq!(turns, ["first"; 2]);
    // Both locks are free again: the one of the first since its wait is over, that of the second since its guard is gone.
    assert_eq!(name(&mut first.lock().expect("lock")), "first");
    assert_eq!(name(&mut second.lock().expect("lock")), "second");
}

#[test]
fn a_guard_that_an_attempt_puts_in_place_of_its_own_keeps_its_lock_no_longer_than_that() {
    let first = channel("first");
    let (second, other) = lasting_guard("second");
    let mut others = Some(other);
    let taken = first.wait(Wait::Frames, |guard| {
        if let Some(other) = others.take() {
            *guard = other;
            return Ok::<_, ChannelError>(None);
        }
        // The guard of the second channel went with the turn that it was put into.
        Ok(Some(name(&mut second.lock()?)))
    });
    assert_eq!(taken.expect("two turns"), "second");
    assert_eq!(name(&mut first.lock().expect("lock")), "first");
}
