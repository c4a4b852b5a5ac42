//! Requests in safe code: of borrowed memory inside of a scope, and of memory that the library owns meanwhile.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use kumi_net::{SharedBytes, SharedBytesMut};

use crate::context::Context;
use crate::error::Error;
use crate::message::check_tag;
use crate::message::mailbox::{ReceiveBuffer, Source, Tag};
use crate::request::progress::kept;
use crate::request::wait::told;
use crate::request::{Atomic, Outcome, PutOptions, Report, RequestHandle};
use crate::window::Window;

/// Begins requests of memory that is borrowed until the scope ends; see [`Context::scope`].
pub struct RequestScope<'scope, 'env: 'scope> {
    context: &'env Context,
    begun: RefCell<Vec<RequestHandle>>,
    /// Neither lifetime can be made shorter or longer.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for RequestScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestScope").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// A request of borrowed memory. Dropping it leaves the request under way until its scope ends.
#[derive(Debug)]
pub struct Request<'scope, B> {
    context: &'scope Context,
    handle: RequestHandle,
    /// Memory that the waiter gets back.
    memory: SharedBytesMut<'scope>,
    gives: PhantomData<B>,
}

/// A request whose memory the library has until it is over. Dropped before that, a send or a put goes on; a get or a receive is
/// given up, and a message that has come for it, even if all of it has, stays for the next receive.
#[derive(Debug)]
pub struct OwnedRequest<'c> {
    context: &'c Context,
    handle: RequestHandle,
}

impl Context {
    /// Runs `body`, which begins requests of memory that it borrows. All of them are over when this returns: after `body` has
    /// succeeded they are waited for; after an error or a panic they are released (see [`Context::release`]).
    ///
    /// ```
    /// # fn main() -> Result<(), kumi_mem::Error> {
    /// use kumi_mem::{PutOptions, Source, Tag};
    ///
    /// let context = kumi_mem::Context::init_singleton()?;
    /// let window = context.window(64)?;
    /// let (mut there, mut message) = ([0; 4], [0; 5]);
    /// context.scope(|scope| {
    ///     scope.put(&window, 0, 8, b"data", PutOptions::default())?;
    ///     let get = scope.get(&window, 0, 8, &mut there)?;
    ///     scope.receive(Source::Any, Tag::Is(1), &mut message)?;
    ///     scope.send(0, 1, b"hello")?;
    ///     let (_, there) = get.wait()?;
    ///     assert_eq!(there, b"data");
    ///     Ok(())
    /// })?;
    /// assert_eq!(&message, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of `body`, or else the first of a request that nobody has waited for.
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope RequestScope<'scope, 'env>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let begun = RefCell::default();
        let scope = RequestScope { context: self, begun, scope: PhantomData, env: PhantomData };
        // However this ends, what is still under way is released.
        let release = ReleaseAll(&scope);
        let result = body(&scope)?;
        // Those that were waited for are not there any more. The list stays as it is until the others are over.
        let live = self.still_there(&scope.begun.borrow())?;
        let ended = self.wait_all(&live)?;
        scope.begun.borrow_mut().clear();
        drop(release);
        // The end of those with a counter or a queue was told there.
        let told_here =
            |ended: &Result<_, Error>| !matches!(ended, Err(Error::StaleRequest { .. }));
        ended.into_iter().filter(told_here).find_map(Result::err).map_or(Ok(result), Err)
    }
}

struct ReleaseAll<'s, 'scope, 'env>(&'s RequestScope<'scope, 'env>);

impl Drop for ReleaseAll<'_, '_, '_> {
    fn drop(&mut self) {
        for handle in self.0.begun.take() {
            // Those that were waited for are not there any more.
            let _ = self.0.context.release(handle);
        }
    }
}

impl<'scope> RequestScope<'scope, '_> {
    /// Begins a put; as [`Window::put_with`], but returns at once.
    ///
    /// # Errors
    /// Those of [`Window::put_with`] that are known at once; [`Error::TooManyRequests`].
    pub fn put(
        &'scope self,
        window: &Window<'_>,
        to: u32,
        offset: usize,
        data: &'scope [u8],
        options: PutOptions<'_>,
    ) -> Result<Request<'scope, ()>, Error> {
        self.own(window.context)?;
        let place = shared(data);
        // SAFETY: borrowed until the scope ends, which waits for the request or releases it.
        self.keep(unsafe { window.start_put(to, offset, place, options) })
    }

    /// Begins a get; as [`Window::get`], but returns at once.
    ///
    /// # Errors
    /// Those of [`Window::get`] that are known at once; [`Error::TooManyRequests`].
    pub fn get(
        &'scope self,
        window: &Window<'_>,
        from: u32,
        offset: usize,
        into: &'scope mut [u8],
    ) -> Result<Request<'scope, &'scope mut [u8]>, Error> {
        self.own(window.context)?;
        let into = SharedBytesMut::from(into);
        // SAFETY: as for `put`.
        self.lend(unsafe { window.start_get(from, offset, into, Report::Handle) }, into)
    }

    /// Begins an atomic operation.
    ///
    /// # Errors
    /// As [`Window::start_atomic`].
    pub fn atomic(
        &'scope self,
        window: &Window<'_>,
        to: u32,
        offset: usize,
        atomic: Atomic,
    ) -> Result<Request<'scope, ()>, Error> {
        self.own(window.context)?;
        self.keep(window.start_atomic(to, offset, atomic, Report::Handle))
    }

    /// Begins to send a message; as [`Context::send`], but returns at once.
    ///
    /// # Errors
    /// As [`Context::start_send`].
    pub fn send(
        &'scope self,
        to: u32,
        tag: i32,
        data: &'scope [u8],
    ) -> Result<Request<'scope, ()>, Error> {
        let place = shared(data);
        // SAFETY: as for `put`.
        self.keep(unsafe { self.context.start_send(to, tag, place, Report::Handle) })
    }

    /// Begins to receive a message; as [`Context::recv`], but returns at once.
    ///
    /// # Errors
    /// As [`Context::start_receive`].
    pub fn receive(
        &'scope self,
        from: Source,
        tag: Tag,
        into: &'scope mut [u8],
    ) -> Result<Request<'scope, &'scope mut [u8]>, Error> {
        let into = SharedBytesMut::from(into);
        // SAFETY: as for `put`.
        self.lend(unsafe { self.context.start_receive(from, tag, into, Report::Handle) }, into)
    }

    /// Requests of another context would not be over with this scope.
    fn own(&self, context: &Context) -> Result<(), Error> {
        if std::ptr::eq(self.context, context) { Ok(()) } else { Err(Error::ForeignCompletion) }
    }

    fn keep(
        &'scope self,
        begun: Result<RequestHandle, Error>,
    ) -> Result<Request<'scope, ()>, Error> {
        self.note(begun, SharedBytesMut::default())
    }

    fn lend(
        &'scope self,
        begun: Result<RequestHandle, Error>,
        memory: SharedBytesMut<'scope>,
    ) -> Result<Request<'scope, &'scope mut [u8]>, Error> {
        self.note(begun, memory)
    }

    fn note<B>(
        &'scope self,
        begun: Result<RequestHandle, Error>,
        memory: SharedBytesMut<'scope>,
    ) -> Result<Request<'scope, B>, Error> {
        let handle = begun?;
        self.begun.borrow_mut().push(handle);
        Ok(Request { context: self.context, handle, memory, gives: PhantomData })
    }
}

impl<B> Request<'_, B> {
    /// Its handle, for waits of several.
    #[must_use]
    pub fn handle(&self) -> RequestHandle {
        self.handle
    }

    /// Cancels it, if nothing of it has happened: then it ends with [`Outcome::Cancelled`].
    ///
    /// # Errors
    /// As [`Context::cancel`].
    pub fn cancel(&self) -> Result<bool, Error> {
        self.context.cancel(self.handle)
    }
}

impl Request<'_, ()> {
    /// Waits until it is over.
    ///
    /// # Errors
    /// As [`Context::wait`].
    pub fn wait(self) -> Result<Outcome, Error> {
        self.context.wait(self.handle)
    }
}

impl<'scope> Request<'scope, &'scope mut [u8]> {
    /// Waits until it is over, and gives the memory back.
    ///
    /// # Errors
    /// As [`Context::wait`].
    pub fn wait(self) -> Result<(Outcome, &'scope mut [u8]), Error> {
        let outcome = self.context.wait(self.handle)?;
        let (start, length) = (self.memory.as_ptr(), self.memory.len());
        // SAFETY: borrowed for this request alone, which is over.
        Ok((outcome, unsafe { std::slice::from_raw_parts_mut(start, length) }))
    }
}

/// The bytes of a slice.
fn shared(data: &[u8]) -> SharedBytes<'_> {
    // SAFETY: they are only read, as long as they are borrowed.
    unsafe { SharedBytes::new(std::ptr::NonNull::from(data).cast(), data.len()) }
}

impl<'c> Window<'c> {
    /// Begins a put of a vector, which the request keeps; as [`Window::put_with`], but returns at once.
    ///
    /// # Errors
    /// As [`Window::start_put`].
    pub fn put_owned(
        &self,
        to: u32,
        offset: usize,
        mut data: Vec<u8>,
        options: PutOptions<'_>,
    ) -> Result<OwnedRequest<'c>, Error> {
        // SAFETY: the request keeps the vector and touches it no more.
        let handle = unsafe {
            let place = kept(&mut data);
            self.put_request(to, offset, place, Some(data), options)
        }?;
        Ok(OwnedRequest { context: self.context, handle })
    }

    /// Begins a get of so many bytes into a vector that the request makes; as [`Window::get`], but returns at once.
    ///
    /// # Errors
    /// As [`Window::start_get`].
    pub fn get_owned(
        &self,
        from: u32,
        offset: usize,
        length: usize,
    ) -> Result<OwnedRequest<'c>, Error> {
        let mut into = vec![0; length];
        // SAFETY: the request keeps the vector, and nobody touches it by its name before it is over.
        let handle = unsafe {
            let place = SharedBytesMut::from(&mut into[..]).lend();
            self.get_request(from, offset, place, Some(into), Report::Handle)
        }?;
        Ok(OwnedRequest { context: self.context, handle })
    }
}

impl Context {
    /// Begins to send a vector, which the request keeps; as [`Context::send`], but returns at once.
    ///
    /// # Errors
    /// As [`Context::start_send`].
    pub fn send_owned(
        &self,
        to: u32,
        tag: i32,
        mut data: Vec<u8>,
    ) -> Result<OwnedRequest<'_>, Error> {
        check_tag(tag)?;
        // SAFETY: the request keeps the vector and touches it no more.
        let handle = unsafe {
            let place = kept(&mut data);
            self.send_request(to, tag, place, Some(data), Report::Handle)
        }?;
        Ok(OwnedRequest { context: self, handle })
    }

    /// Begins to receive a message of any length; as [`Context::recv_vec`], but returns at once.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadTag`], [`Error::TooManyRequests`].
    pub fn receive_owned(&self, from: Source, tag: Tag) -> Result<OwnedRequest<'_>, Error> {
        let wanted = self.wanted(from, tag)?;
        let buffer = ReceiveBuffer::Grown(Vec::new());
        let handle = self.receive_request(wanted, buffer, Report::Handle)?;
        Ok(OwnedRequest { context: self, handle })
    }
}

impl OwnedRequest<'_> {
    /// Its handle, for waits of several.
    #[must_use]
    pub fn handle(&self) -> RequestHandle {
        self.handle
    }

    /// Waits until it is over, and gives the vector: the data of a put or send, the bytes of a get, a message.
    ///
    /// # Errors
    /// As [`Context::wait`].
    pub fn wait(self) -> Result<(Outcome, Vec<u8>), Error> {
        let mut over = self.context.wait_over(self.handle)?;
        let owned = over.owned.take().unwrap_or_default();
        told(over).map(|outcome| (outcome, owned))
    }

    /// Cancels it, if nothing of it has happened: then it ends with [`Outcome::Cancelled`].
    ///
    /// # Errors
    /// As [`Context::cancel`].
    pub fn cancel(&self) -> Result<bool, Error> {
        self.context.cancel(self.handle)
    }
}

impl Drop for OwnedRequest<'_> {
    fn drop(&mut self) {
        if !self.context.is_copy() {
            // If it was waited for it is not there any more.
            let _ = self.context.release(self.handle);
        }
    }
}
