package kumi.call;

import kumi.call.wire.Failure;

/** A failed call or connection. Each kind of failure has its own class; the message says what happened and what to do. */
public sealed class CallException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** A failure at the server without a class of its own. */
    private final int code;

    /** Where the only attempt through a metaserver was, and why it ended; null: there was none. */
    private String attempt;

    CallException(String message) {
        this(message, 0, null);
    }

    CallException(String message, int code, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    /** Names the server of the only attempt in the message. */
    CallException at(String attempt) {
        this.attempt = attempt;
        return this;
    }

    @Override
    public String getMessage() {
        return attempt == null ? super.getMessage() : attempt;
    }

    /** Whether the routine has certainly not begun. Then a retry cannot run it twice. */
    public boolean hasNotRun() {
        return false;
    }

    /** The failure's number in the protocol; 0: the client itself found the failure. */
    public int code() {
        return code;
    }

    /** A failure before the routine began. */
    public abstract static sealed class NotRun extends CallException {
        private static final long serialVersionUID = 1;

        NotRun(String message, int code, Throwable cause) {
            super(message, code, cause);
        }

        @Override
        public boolean hasNotRun() {
            return true;
        }
    }

    /** The arguments do not fit the routine in number, type, shape or size. Nothing was sent. */
    public static final class Argument extends NotRun {
        private static final long serialVersionUID = 1;

        Argument(String message) {
            super(message, 0, null);
        }

        Argument(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The server has no routine of this name; the message suggests similar names. */
    public static final class RoutineNotFound extends NotRun {
        private static final long serialVersionUID = 1;

        RoutineNotFound(String message) {
            super(message, 0, null);
        }

        RoutineNotFound(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** No server answers at this address. */
    public static final class Connect extends NotRun {
        private static final long serialVersionUID = 1;

        Connect(String message, Throwable cause) {
            super(message, 0, cause);
        }
    }

    /** The connection was lost or closed. A call in progress may have run. */
    public static final class ConnectionLost extends CallException {
        private static final long serialVersionUID = 1;

        private final boolean unsent;

        ConnectionLost(String message, boolean unsent) {
            super(message);
            this.unsent = unsent;
        }

        @Override
        public boolean hasNotRun() {
            return unsent;
        }
    }

    /** The call needs more memory than is allowed. */
    public static final class TooLarge extends NotRun {
        private static final long serialVersionUID = 1;

        TooLarge(String message, int code) {
            super(message, code, null);
        }
    }

    /** The server does not give the threads or the memory that the call asks for. */
    public static final class NoResources extends NotRun {
        private static final long serialVersionUID = 1;

        NoResources(String message, int code) {
            super(message, code, null);
        }
    }

    /** The metaserver has no server that offers the routine or accepts the call. */
    public static final class NoServer extends CallException {
        private static final long serialVersionUID = 1;

        private final boolean unsent;

        NoServer(Failure failure) {
            // Behind attempts there is a detail.
            this(failure.text(), failure.code(), failure.code() == 21 && failure.detail() == 0, null);
        }

        NoServer(String message, int code, boolean unsent, Throwable cause) {
            super(message, code, cause);
            this.unsent = unsent;
        }

        @Override
        public boolean hasNotRun() {
            return unsent;
        }
    }

    /** The queue of waiting calls is full; try again later. */
    public static final class Busy extends NotRun {
        private static final long serialVersionUID = 1;

        Busy(String message) {
            super(message, 0, null);
        }

        Busy(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The routine's library or symbol is missing at the server. */
    public static final class NotRunnable extends NotRun {
        private static final long serialVersionUID = 1;

        NotRunnable(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The server denies this client access. */
    public static final class NotPermitted extends NotRun {
        private static final long serialVersionUID = 1;

        NotPermitted(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The routine crashed or ended its process. */
    public static final class Crashed extends CallException {
        private static final long serialVersionUID = 1;

        private final long detail;

        Crashed(Failure failure) {
            super(failure.text(), failure.code(), null);
            detail = failure.detail();
        }

        /** The signal, or {@code -1 - exit code}. */
        public long detail() {
            return detail;
        }
    }

    /** The call exceeded its time limit and was stopped. */
    public static final class TimedOut extends CallException {
        private static final long serialVersionUID = 1;

        TimedOut(String message, int code) {
            super(message, code, null);
        }
    }

    /** The call was cancelled. */
    public static final class Cancelled extends CallException {
        private static final long serialVersionUID = 1;

        Cancelled(String message, int code) {
            super(message, code, null);
        }
    }

    /** The waiting thread was interrupted. The call was cancelled, and the thread's interrupt flag is set again. */
    public static final class Interrupted extends CallException {
        private static final long serialVersionUID = 1;

        Interrupted() {
            super("the wait for the call was interrupted; the call was cancelled");
        }
    }

    /** The routine has run and returned a failure status. */
    public static final class Status extends CallException {
        private static final long serialVersionUID = 1;

        private final long status;
        private final transient Result results;

        Status(String routine, String param, long status, Result results) {
            super("`" + routine + "` failed: " + param + " is " + status);
            this.status = status;
            this.results = results;
        }

        /** The routine's status. */
        public long status() {
            return status;
        }

        /** The results that it returned nevertheless. */
        public Result results() {
            return results;
        }
    }

    /** A callback of this program threw the exception that is the cause. The routine was stopped. */
    public static final class Callback extends CallException {
        private static final long serialVersionUID = 1;

        Callback(Failure failure, Throwable raised) {
            super(failure.text(), failure.code(), raised);
        }
    }

    /** A file cannot be read or written, here (code 0) or at the server. */
    public static final class File extends CallException {
        private static final long serialVersionUID = 1;

        private final boolean unsent;

        File(String message, boolean unsent) {
            super(message);
            this.unsent = unsent;
        }

        File(Failure failure) {
            super(failure.text(), failure.code(), null);
            unsent = false;
        }

        @Override
        public boolean hasNotRun() {
            return unsent;
        }
    }

    /** The routine ended with an exception; the message has the exception's type and message. */
    public static final class Raised extends CallException {
        private static final long serialVersionUID = 1;

        Raised(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The object of the call no longer exists. The method has not run. */
    public static final class ObjectLost extends NotRun {
        private static final long serialVersionUID = 1;

        ObjectLost(String message, int code) {
            super(message, code, null);
        }
    }

    /** An array of the call is not at the server any more, or the server is gone with it. The call runs nowhere else. */
    public static final class HeldLost extends CallException {
        private static final long serialVersionUID = 1;

        private final boolean unsent;

        HeldLost(String message, int code) {
            this(message, code, true, null);
        }

        HeldLost(String message, int code, boolean unsent, Throwable cause) {
            super(message, code, cause);
            this.unsent = unsent;
        }

        /** False if the server went while the routine may have run. */
        @Override
        public boolean hasNotRun() {
            return unsent;
        }
    }

    /** The token has expired. */
    public static final class Expired extends NotRun {
        private static final long serialVersionUID = 1;

        Expired(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** Only one side uses TLS, or the server's certificate is not valid. Nothing was sent. */
    public static final class Tls extends NotRun {
        private static final long serialVersionUID = 1;

        Tls(String message, int code, Throwable cause) {
            super(message, code, cause);
        }
    }

    /** Any other failure at the server. */
    public static final class Server extends CallException {
        private static final long serialVersionUID = 1;

        Server(String message, int code) {
            super(message, code, null);
        }

        @Override
        public boolean hasNotRun() {
            // Changed description, server shutting down, no common version, held arrays that are not there yet or find no room, expired ticket,
            // standby metaserver.
            return switch (code()) {
                case 2, 12, 13, 16, 17, 18, 20, 23 -> true;
                default -> false;
            };
        }
    }

    /** The exception for a server's failure; {@code raised} is the exception of a callback, or null. */
    static CallException of(Failure failure, Throwable raised) {
        return switch (failure.code()) {
            case 1 -> new RoutineNotFound(failure);
            case 3 -> new Argument(failure);
            case 4 -> new TooLarge(failure.text(), failure.code());
            case 5 -> new Busy(failure);
            case 6 -> new Crashed(failure);
            case 7 -> new TimedOut(failure.text(), failure.code());
            case 8 -> new Cancelled(failure.text(), failure.code());
            case 9 -> new NotRunnable(failure);
            case 10 -> new NotPermitted(failure);
            case 14 -> new Callback(failure, raised);
            case 15 -> new HeldLost(failure.text(), failure.code());
            case 21, 22 -> new NoServer(failure);
            case 25 -> new Expired(failure);
            case 26 -> new Tls(failure.text(), failure.code(), null);
            case 30 -> new File(failure);
            case 31 -> new Raised(failure);
            case 32 -> new ObjectLost(failure.text(), failure.code());
            case 33 -> new NoResources(failure.text(), failure.code());
            default -> new Server(failure.text(), failure.code());
        };
    }
}
