//! The end of an operation: counters and queues are told.

use crate::abi::{FI_MULTI_RECV, FI_REMOTE_CQ_DATA};
use crate::completion_queue::Entry;
use crate::operation::{Failure, Operation, Success};

impl Operation {
    /// Tells that the operation succeeded: the queue first, so that who waits for the counter finds the entry there.
    pub fn succeed(self, success: Success) {
        if let (true, Some(queue)) = (self.completion, &self.queue) {
            let flags = entry_flags(self.flags, &success);
            queue.push(Entry { context: self.context, flags, known: success, failure: None });
        }
        if let Some(counter) = &self.counter {
            counter.add(1);
        }
    }

    /// Tells that the operation failed. Queues have an entry of every failure, also of operations whose success is not told.
    pub fn fail(self, failure: Failure) {
        if let Some(queue) = &self.queue {
            let Failure { error, known, too_long_by } = failure;
            let flags = entry_flags(self.flags, &known);
            queue.push(Entry {
                context: self.context,
                flags,
                known,
                failure: Some((error, too_long_by)),
            });
        }
        if let Some(counter) = &self.counter {
            counter.add_failures(1);
        }
    }
}

fn entry_flags(flags: u64, known: &Success) -> u64 {
    let data = if known.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
    let last = if known.last_of_buffer { FI_MULTI_RECV } else { 0 };
    flags | data | last
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::completion_queue::{CompletionQueue, Taken};
    use crate::counter::Counter;

    fn operation(completion: bool) -> (Operation, Arc<CompletionQueue>, Arc<Counter>) {
        let queue = Arc::new(CompletionQueue::new(4, false).unwrap());
        let counter = Arc::new(Counter::new(false).unwrap());
        let operation = Operation {
            context: 11,
            flags: crate::abi::FI_RECV,
            completion,
            queue: Some(Arc::clone(&queue)),
            counter: Some(Arc::clone(&counter)),
        };
        (operation, queue, counter)
    }

    #[test]
    fn a_success_is_counted_and_told_if_asked() {
        let (wanted, queue, counter) = operation(true);
        wanted.succeed(Success { data: Some(5), last_of_buffer: true, ..Success::default() });
        let mut flags = 0;
        assert_eq!(queue.take(1, |_, entry| flags = entry.flags), Taken::Entries(1));
        assert_eq!(flags, crate::abi::FI_RECV | FI_REMOTE_CQ_DATA | FI_MULTI_RECV);
        assert_eq!(counter.successes(), 1);

        let (silent, queue, counter) = operation(false);
        silent.succeed(Success::default());
        assert!(queue.is_empty());
        assert_eq!(counter.successes(), 1);
    }

    #[test]
    fn a_failure_is_always_told() {
        let (silent, queue, counter) = operation(false);
        silent.fail(Failure { error: 125, known: Success::default(), too_long_by: 3 });
        assert_eq!(queue.take_failure().unwrap().failure, Some((125, 3)));
        assert_eq!((counter.successes(), counter.failures()), (0, 1));
    }
}
