//! A message to a service that came in one frame, where it lies.

use std::fmt;
use std::ptr::NonNull;

use kumi_net::{CopySource, SharedBytes, SharedBytesMut};

/// A message that has come in one frame, for as long as [`Service::arrived`](crate::Service::arrived) looks at it. It lies in a
/// ring, where its sender may change it at any time, or in a packet. So there is no reference to its bytes: what is decided by
/// them is copied out once.
pub struct ArrivedMessage<'m>(SharedBytes<'m>);

impl<'m> ArrivedMessage<'m> {
    /// The bytes of a part of a frame, for as long as that is borrowed.
    pub(crate) fn new<S: CopySource + 'm>(data: S) -> ArrivedMessage<'m> {
        let start = NonNull::new(data.address().cast_mut()).unwrap_or(NonNull::dangling());
        // SAFETY: a payload is private bytes behind a shared reference, which nobody writes and which may be read by atomics,
        // too; or it is shared bytes. Both are there for `'m`. (The address of no bytes may be anything.)
        ArrivedMessage(unsafe { SharedBytes::new(start, data.len()) })
    }

    /// Bytes of the message. They do not change.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Copies the beginning to private memory, as much as there is and as fits; how many bytes. Two copies of the same bytes may
    /// differ.
    #[inline]
    pub fn copy_prefix(&self, into: &mut [u8]) -> usize {
        let length = into.len().min(self.len());
        self.0.slice(0, length).copy_to(&mut into[..length]);
        length
    }

    /// Copies the bytes from `offset` on, as many as `into` has, to where they belong.
    ///
    /// # Panics
    /// If the message has not so many.
    #[inline]
    pub fn copy_to(&self, offset: usize, into: SharedBytesMut<'_>) {
        into.copy_from(self.0.slice(offset, into.len()));
    }
}

impl fmt::Debug for ArrivedMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArrivedMessage").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_copied_from_where_it_lies() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut other = bytes.clone();
        let other = SharedBytesMut::from(&mut other[..]);
        for message in [ArrivedMessage::new(&bytes[..]), ArrivedMessage::new(other.shared())] {
            assert_eq!((message.len(), message.is_empty()), (100, false));
            let (mut head, mut all, mut rest) = ([0; 8], [0; 120], vec![0; 92]);
            assert_eq!(message.copy_prefix(&mut head), 8);
            assert_eq!(message.copy_prefix(&mut all), 100);
            message.copy_to(8, SharedBytesMut::from(&mut rest[..]));
            assert_eq!((&head[..], &all[..100], &rest[..]), (&bytes[..8], &bytes[..], &bytes[8..]));
        }
        let none = ArrivedMessage::new(&[][..]);
        assert_eq!((none.is_empty(), none.copy_prefix(&mut [1; 4])), (true, 0));
    }

    #[test]
    #[should_panic(expected = "are not inside of")]
    fn a_message_has_no_more_bytes_than_it_has() {
        ArrivedMessage::new(&[1; 4][..]).copy_to(3, SharedBytesMut::from(&mut [0; 2][..]));
    }
}
