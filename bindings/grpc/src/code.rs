//! Error codes, their texts, and the last failure of each thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kumi_call_client::CallError;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $c:literal, $text:literal;)*) => {
        /// An error of `grpc.h`. Numbers are never reused for another meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Code { $($(#[$doc])* $name = $value,)* }

        impl Code {
            /// Every code, in the order of the header.
            pub const EVERY: &'static [Code] = &[$(Code::$name,)*];

            /// Its name in C.
            #[must_use]
            pub fn name(self) -> &'static CStr {
                match self { $(Code::$name => $c,)* }
            }

            /// One sentence that explains it.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// Success.
    NoError = 0, c"GRPC_NO_ERROR", "success";
    /// `grpc_initialize` has not succeeded.
    NotInitialized = 1, c"GRPC_NOT_INITIALIZED", "call grpc_initialize first";
    /// No such file.
    ConfigFileNotFound = 2, c"GRPC_CONFIGFILE_NOT_FOUND", "the configuration file cannot be read";
    /// It has an invalid setting.
    ConfigFileError = 3, c"GRPC_CONFIGFILE_ERROR", "the configuration file or an environment variable has an invalid setting";
    /// The server cannot be reached.
    ServerNotFound = 4, c"GRPC_SERVER_NOT_FOUND", "no server can be reached";
    /// It has no such routine.
    FunctionNotFound = 5, c"GRPC_FUNCTION_NOT_FOUND", "the server has no such routine";
    /// Not a handle, or destructed.
    InvalidFunctionHandle = 6, c"GRPC_INVALID_FUNCTION_HANDLE", "this is no function handle, or it was destructed";
    /// Not a session, or one that was forgotten.
    InvalidSessionId = 7, c"GRPC_INVALID_SESSION_ID", "there is no such session";
    /// The server does not run the call.
    RpcRefused = 8, c"GRPC_RPC_REFUSED", "the server refused the call";
    /// The connection is lost; the call may have run.
    CommunicationFailed = 9, c"GRPC_COMMUNICATION_FAILED", "the connection to the server is lost";
    /// The call failed after it had begun.
    SessionFailed = 10, c"GRPC_SESSION_FAILED", "the call failed";
    /// It is under way.
    NotCompleted = 11, c"GRPC_NOT_COMPLETED", "the call is not over";
    /// All are under way.
    NoneCompleted = 12, c"GRPC_NONE_COMPLETED", "none of the calls is over";
    /// Anything that has no code of its own.
    OtherErrorCode = 13, c"GRPC_OTHER_ERROR_CODE", "the operation failed";
    /// A code that does not exist.
    UnknownErrorCode = 14, c"GRPC_UNKNOWN_ERROR_CODE", "this is no error code";
    /// `grpc_initialize` was called twice.
    AlreadyInitialized = 15, c"GRPC_ALREADY_INITIALIZED", "grpc_initialize was called before";
    /// The greatest code of the standard.
    LastErrorCode = 16, c"GRPC_LAST_ERROR_CODE", "the greatest error code of the standard";
    /// The call took longer than it may.
    Timeout = 32, c"GRPC_TIMEOUT_NP", "the call took longer than it may and was stopped";
    /// The call was cancelled.
    Canceled = 33, c"GRPC_CANCELED_NP", "the call was cancelled";
    /// Arguments do not fit the description; nothing was sent.
    InvalidArgument = 34, c"GRPC_INVALID_ARGUMENT_NP", "the arguments do not fit the routine's description; nothing was sent";
    /// The routine ended its process.
    Crashed = 35, c"GRPC_CRASHED_NP", "the routine crashed";
    /// The routine says that it failed.
    Status = 36, c"GRPC_STATUS_NP", "the routine says by its status that it failed";
    /// As many calls wait as may.
    Busy = 37, c"GRPC_BUSY_NP", "the server has as many calls as it may; try again later";
    /// More memory than a call may have.
    TooLarge = 38, c"GRPC_TOO_LARGE_NP", "the call needs more memory than a call may have";
    /// The server does not take this client.
    NotPermitted = 39, c"GRPC_NOT_PERMITTED_NP", "the server does not take this client; look at the token";
    /// The routine's library or symbol is not there.
    NotRunnable = 40, c"GRPC_NOT_RUNNABLE_NP", "the server cannot run the routine; its library is missing";
    /// A function of the program failed.
    CallbackFailed = 41, c"GRPC_CALLBACK_FAILED_NP", "a function that the routine called failed";
    /// A file cannot be read or written.
    File = 42, c"GRPC_FILE_NP", "a file cannot be read or written";
    /// A function of Python that is served has raised an exception.
    Raised = 43, c"GRPC_RAISED_NP", "the routine ended with an exception";
    /// The token was good once.
    Expired = 44, c"GRPC_EXPIRED_NP", "the token has expired; get a new one from the server's owner";
    /// The object of a call is no more; the call has not run.
    ObjectLost = 45, c"GRPC_OBJECT_LOST_NP", "the object is no more; make another";
    /// The server does not hold an array any more, or is gone with it.
    HeldLost = 46, c"GRPC_HELD_LOST_NP", "an array is not at the server any more; call again what makes it";
    /// The server has no room to hold a result; the call has not run.
    HeldFull = 47, c"GRPC_HELD_FULL_NP", "the server has no room to hold arrays; release others, or try again later";
    /// A call of a transaction did not run.
    NotRun = 48, c"GRPC_NOT_RUN_NP", "the call did not run, since one failed that makes what it reads";
    /// No transaction, or one that is over.
    InvalidTransaction = 49, c"GRPC_INVALID_TRANSACTION_NP", "this is no transaction, or it was destructed";
}

impl Code {
    /// The code of the standard for it; the standard has fewer codes.
    #[must_use]
    pub fn standard(self) -> Code {
        match self {
            Code::Crashed
            | Code::Status
            | Code::CallbackFailed
            | Code::File
            | Code::Raised
            | Code::NotRun => Code::SessionFailed,
            Code::InvalidTransaction => Code::InvalidArgument,
            Code::Busy
            | Code::TooLarge
            | Code::NotPermitted
            | Code::Expired
            | Code::NotRunnable
            | Code::ObjectLost
            | Code::HeldLost
            | Code::HeldFull => Code::RpcRefused,
            other => other,
        }
    }

    /// Result of a wait for a session that ended with it: the standard knows one code for all failures of sessions.
    #[must_use]
    pub fn of_wait(self) -> Code {
        match self {
            Code::NoError => self,
            _ => Code::SessionFailed,
        }
    }
}

/// A failure: its code and its reason.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The exact code.
    pub code: Code,
    /// The code of the standard for it.
    standard: Code,
    /// A sentence.
    pub detail: String,
}

impl Failure {
    /// A failure with its reason.
    pub fn new(code: Code, detail: impl Into<String>) -> Failure {
        Failure { code, standard: code.standard(), detail: detail.into() }
    }

    /// A pointer that must not be null.
    pub fn null(what: &str) -> Failure {
        Failure::new(Code::OtherErrorCode, format!("{what} is NULL"))
    }

    /// Arguments that do not fit.
    pub fn argument(detail: impl Into<String>) -> Failure {
        Failure::new(Code::InvalidArgument, detail)
    }
}

impl From<Code> for Failure {
    fn from(code: Code) -> Failure {
        Failure::new(code, code.text())
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        let mut failure = Failure::new(Code::of(&error), error.to_string());
        if matches!(error, CallError::HeldLost { has_not_run: false, .. }) {
            // Nobody has refused it: the server went while it may have run.
            failure.standard = Code::SessionFailed;
        }
        failure
    }
}

impl Code {
    /// The exact code of an error.
    pub fn of(error: &CallError) -> Code {
        // After several attempts, the last failure decides the code.
        let kind = match error {
            CallError::Attempts { last, .. } => last,
            other => other,
        };
        match kind {
            CallError::Connect { .. }
            | CallError::Address(_)
            | CallError::NotMetaserver(_)
            | CallError::Tls { .. }
            | CallError::NoServer { .. }
            | CallError::NotLeading { .. } => Code::ServerNotFound,
            CallError::Environment { .. } => Code::ConfigFileError,
            CallError::Lost(_) => Code::CommunicationFailed,
            CallError::RoutineNotFound(_) => Code::FunctionNotFound,
            CallError::Argument { .. } | CallError::NoPriority(_) | CallError::HeldElsewhere(_) => {
                Code::InvalidArgument
            }
            CallError::TooLarge(_) | CallError::NoResources(_) => Code::TooLarge,
            CallError::Busy(_) => Code::Busy,
            CallError::Crashed { .. } => Code::Crashed,
            CallError::TimedOut(_) => Code::Timeout,
            CallError::Cancelled(_) => Code::Canceled,
            CallError::NotRunnable(_) => Code::NotRunnable,
            CallError::NotPermitted(_) => Code::NotPermitted,
            CallError::Expired(_) => Code::Expired,
            CallError::Raised { .. } => Code::Raised,
            CallError::Status { .. } => Code::Status,
            CallError::Callback(_) => Code::CallbackFailed,
            CallError::File(_) => Code::File,
            CallError::ObjectLost(_) => Code::ObjectLost,
            CallError::NotHeld { .. } | CallError::HeldLost { .. } => Code::HeldLost,
            CallError::HeldFull(_) => Code::HeldFull,
            _ => Code::OtherErrorCode,
        }
    }
}

/// A thread's record of failures.
struct ThreadError {
    code: Code,
    detail: Option<CString>,
    failed: VecDeque<c_int>,
}

thread_local! {
    static LAST: RefCell<ThreadError> = const {
        RefCell::new(ThreadError { code: Code::NoError, detail: None, failed: VecDeque::new() })
    };
}

/// Keeps a failure for `grpc_last_error_get_np` and `grpc_last_error_text_np`; returns its code of the standard.
pub fn report(failure: &Failure) -> c_int {
    let bytes: Vec<u8> = failure.detail.bytes().filter(|byte| *byte != 0).collect();
    let detail = CString::new(bytes).unwrap_or_default();
    // A thread that is ending cannot keep it; the returned code remains.
    let _ending = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        (last.code, last.detail) = (failure.code, Some(detail));
    });
    failure.standard as c_int
}

/// The last failure of this thread.
pub fn last_code() -> Code {
    LAST.try_with(|last| last.borrow().code).unwrap_or(Code::NoError)
}

/// Its text; valid until the thread's next failure.
pub fn last_detail() -> *const c_char {
    let text =
        |last: &RefCell<ThreadError>| last.borrow().detail.as_ref().map(|detail| detail.as_ptr());
    LAST.try_with(text).ok().flatten().unwrap_or(c"".as_ptr())
}

/// Keeps the sessions that failed in a wait.
pub fn set_failed(sessions: impl IntoIterator<Item = c_int>) {
    let _ending = LAST.try_with(|last| last.borrow_mut().failed = sessions.into_iter().collect());
}

/// The next failed session.
pub fn next_failed() -> Option<c_int> {
    LAST.try_with(|last| last.borrow_mut().failed.pop_front()).ok().flatten()
}

/// Runs `body` and turns its failure, or panic, into a code of the standard.
pub fn guard(body: impl FnOnce() -> Result<Code, Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code as c_int,
        Ok(Err(failure)) => report(&failure),
        Err(_) => report(&Failure::new(
            Code::OtherErrorCode,
            "a defect in the library (please report it)",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_and_failures_are_told_apart_and_have_codes_of_the_standard() {
        let text = || "why".to_owned();
        let held_lost =
            |has_not_run| CallError::HeldLost { what: text(), why: text(), has_not_run };
        let cases = [
            (CallError::NotPermitted(text()), Code::NotPermitted, Code::RpcRefused),
            (CallError::Expired(text()), Code::Expired, Code::RpcRefused),
            (CallError::TooLarge(text()), Code::TooLarge, Code::RpcRefused),
            (CallError::NoResources(text()), Code::TooLarge, Code::RpcRefused),
            (
                CallError::Raised { routine: text(), text: text() },
                Code::Raised,
                Code::SessionFailed,
            ),
            (CallError::File(text()), Code::File, Code::SessionFailed),
            (CallError::ObjectLost(text()), Code::ObjectLost, Code::RpcRefused),
            (CallError::HeldFull(text()), Code::HeldFull, Code::RpcRefused),
            (CallError::HeldElsewhere(text()), Code::InvalidArgument, Code::InvalidArgument),
            (held_lost(true), Code::HeldLost, Code::RpcRefused),
            (held_lost(false), Code::HeldLost, Code::SessionFailed),
            (CallError::Lost(text()), Code::CommunicationFailed, Code::CommunicationFailed),
            (CallError::Cancelled(text()), Code::Canceled, Code::Canceled),
            (CallError::TimedOut(text()), Code::Timeout, Code::Timeout),
        ];
        for (error, exact, standard) in cases {
            let said = error.to_string();
            let failure = Failure::from(error);
            assert_eq!((failure.code, failure.standard), (exact, standard), "{said}");
            assert_eq!((failure.code.of_wait(), failure.detail), (Code::SessionFailed, said));
        }
    }
}
