//! The context that shared memory is made on.

use std::ops::Deref;
use std::sync::Arc;

use kumi_mem::Context;

/// A context that stays as long as shared memory needs it: one that is never dropped, or one that is shared.
#[derive(Debug, Clone)]
pub struct SharedContext(Holder);

#[derive(Debug, Clone)]
enum Holder {
    Forever(&'static Context),
    Counted(Arc<Context>),
}

impl From<&'static Context> for SharedContext {
    fn from(context: &'static Context) -> SharedContext {
        SharedContext(Holder::Forever(context))
    }
}

impl From<Arc<Context>> for SharedContext {
    fn from(context: Arc<Context>) -> SharedContext {
        SharedContext(Holder::Counted(context))
    }
}

impl From<Context> for SharedContext {
    fn from(context: Context) -> SharedContext {
        Arc::new(context).into()
    }
}

impl Deref for SharedContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        match &self.0 {
            Holder::Forever(context) => context,
            Holder::Counted(context) => context,
        }
    }
}

impl SharedContext {
    /// The context, for values that borrow it and are kept beside this one.
    ///
    /// # Safety
    /// Whoever keeps what borrows the context also keeps a clone of this, and drops that later.
    pub(crate) unsafe fn extended(&self) -> &'static Context {
        let context: *const Context = &raw const **self;
        // SAFETY: the context is behind a reference that lasts for ever, or in an `Arc`, where it stays at its place as long as a
        // clone of this is kept. The caller promises that one is.
        unsafe { &*context }
    }
}
