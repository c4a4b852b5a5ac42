//! Zero-copy puts: data is sent from where it lies, for the length of a call, or from a window until it
//! has arrived.

use std::ops::Range;

use kumi_net::CopySource;

use crate::context::Context;
use crate::error::Error;
use crate::window::Window;
use crate::window::completion::OnPlacement;
use crate::window::strided::Strided;

/// Data of at least so many bytes is lent for the length of a call. At its end unacked bytes are
/// copied, up to a send ring full: with less data too little is gained.
const WORTHWHILE: usize = 512 << 10;

/// Data of the caller that is lent for the length of a call. Dropping this takes it back, also after an
/// error or a panic. It is never forgotten, which makes lending sound.
pub(crate) struct ScopedLoan<'c> {
    context: &'c Context,
    to: u32,
    data: Range<*const u8>,
}

impl<'c> ScopedLoan<'c> {
    /// Lends it, if that is worth it. To ranks of the same node nothing is lent.
    pub(crate) fn new(
        context: &'c Context,
        to: u32,
        data: impl CopySource,
    ) -> Option<ScopedLoan<'c>> {
        let lends = context.lends && data.len() >= WORTHWHILE && !context.same_node(to);
        let start = data.address();
        lends.then(|| ScopedLoan { context, to, data: start..start.wrapping_add(data.len()) })
    }
}

impl Drop for ScopedLoan<'_> {
    fn drop(&mut self) {
        self.context.channel.take_back(Some(self.to), self.data.clone());
    }
}

impl Window<'_> {
    /// As [`Window::put_with`] for the bytes `own` of the own piece, which may be sent from where they
    /// lie. To other nodes they are not copied if packets are long (Ethernet frames of 9,000 bytes) and
    /// not encrypted.
    ///
    /// The call returns before the put has arrived. Until then the target may get the old contents of
    /// `own`, the new ones, or some of each. The put has arrived when [`OnPlacement::completion`]
    /// counts it, [`Context::flush`] has returned, or the target has answered its notification.
    /// Changing `own` is safe, and so is freeing the window.
    ///
    /// ```
    /// # fn main() -> Result<(), kumi_mem::Error> {
    /// use kumi_mem::OnPlacement;
    /// let context = kumi_mem::Context::init_singleton()?;
    /// let window = context.window(1 << 20)?;
    /// window.write(0, &[7; 1000])?;
    /// let completion = context.completion()?;
    /// let after = OnPlacement { completion: Some(&completion), ..OnPlacement::default() };
    /// let next = (context.rank() + 1) % context.ranks();
    /// window.put_from(0..1000, next, 4096, after)?;
    /// completion.wait_all()?; // From here on the first thousand bytes may change.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Window::put_with`]; [`Error::OutOfBounds`] of the own rank if `own` does not lie in the own piece.
    pub fn put_from(
        &self,
        own: Range<usize>,
        to: u32,
        offset: usize,
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        let length = own.end.wrapping_sub(own.start);
        let data = self.own(own.start, length)?.shared();
        let shape = Strided { offset, stride: length, block: length, count: 1 };
        // SAFETY: the memory of a window stays until it is removed, which takes back what is lent.
        unsafe { self.put_blocks(to, shape, data, after, true) }
    }
}
