package kumi.call;

import kumi.call.wire.Failure;

/** Why a call, or the connection, failed. Each kind is a class of its own; the message says what happened and what to do. */
public sealed class CallException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** What the server says, of which there is no class of its own. */
    private final int code;

    CallException(String message) {
        this(message, 0, null);
    }

    CallException(String message, int code, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    /** Whether the routine has certainly not begun to run: then the call may be tried again without being run twice. */
    public boolean hasNotRun() {
        return false;
    }

    /** The protocol's number of the failure; 0: it was found here. */
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

    /** Arguments that do not fit the routine: their number, type, shape or size. Nothing was sent. */
    public static final class Argument extends NotRun {
        private static final long serialVersionUID = 1;

        Argument(String message) {
            super(message, 0, null);
        }

        Argument(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The server has no routine of this name; the message names the nearest. */
    public static final class RoutineNotFound extends NotRun {
        private static final long serialVersionUID = 1;

        RoutineNotFound(String message) {
            super(message, 0, null);
        }

        RoutineNotFound(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The server cannot be reached, or what answers is no server. */
    public static final class Connect extends NotRun {
        private static final long serialVersionUID = 1;

        Connect(String message, Throwable cause) {
            super(message, 0, cause);
        }
    }

    /** The connection was lost or closed. A call that was under way may have run. */
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

    /** The call needs more memory than a call may have. */
    public static final class TooLarge extends NotRun {
        private static final long serialVersionUID = 1;

        TooLarge(String message, int code) {
            super(message, code, null);
        }
    }

    /** No server offers the routine any more, or none took the call; only metaservers say so. */
    public static final class NoServer extends CallException {
        private static final long serialVersionUID = 1;

        private final boolean unsent;

        NoServer(Failure failure) {
            this(failure.text(), failure.code(), false, null);
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

    /** As many calls wait as may; try again later. */
    public static final class Busy extends NotRun {
        private static final long serialVersionUID = 1;

        Busy(String message) {
            super(message, 0, null);
        }

        Busy(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The routine's library or symbol is not there. */
    public static final class NotRunnable extends NotRun {
        private static final long serialVersionUID = 1;

        NotRunnable(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The server does not take this client. */
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

        /** The signal, or -1 - the exit code. */
        public long detail() {
            return detail;
        }
    }

    /** The call took longer than it may, and was stopped. */
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

    /** The thread was interrupted while it waited; the call was cancelled, and the thread is marked as interrupted again. */
    public static final class Interrupted extends CallException {
        private static final long serialVersionUID = 1;

        Interrupted() {
            super("the wait for the call was interrupted; the call was cancelled");
        }
    }

    /** The routine has run and says that it failed. */
    public static final class Status extends CallException {
        private static final long serialVersionUID = 1;

        private final long status;
        private final transient Result results;

        Status(String routine, String param, long status, Result results) {
            super("`" + routine + "` failed: " + param + " is " + status);
            this.status = status;
            this.results = results;
        }

        /** What the routine says. */
        public long status() {
            return status;
        }

        /** What it gave all the same. */
        public Result results() {
            return results;
        }
    }

    /** A function of this program that the routine called has failed: what it has thrown is the cause. The routine was ended. */
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

    /** The routine has run and ended with an exception; the message is its kind and message. */
    public static final class Raised extends CallException {
        private static final long serialVersionUID = 1;

        Raised(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** The object of a class on which the call was to run is no more. */
    public static final class ObjectLost extends NotRun {
        private static final long serialVersionUID = 1;

        ObjectLost(String message, int code) {
            super(message, code, null);
        }
    }

    /** The token has expired. */
    public static final class Expired extends NotRun {
        private static final long serialVersionUID = 1;

        Expired(Failure failure) {
            super(failure.text(), failure.code(), null);
        }
    }

    /** One side alone speaks TLS, or the server is not who it should be. Nothing was sent. */
    public static final class Tls extends NotRun {
        private static final long serialVersionUID = 1;

        Tls(String message, int code, Throwable cause) {
            super(message, code, cause);
        }
    }

    /** Something else that the server says. */
    public static final class Server extends CallException {
        private static final long serialVersionUID = 1;

        Server(String message, int code) {
            super(message, code, null);
        }

        @Override
        public boolean hasNotRun() {
            // The description has changed, the server ends, no common version, arrays that are not held or have no room, a
            // ticket that is not taken any more, a metaserver that does not lead.
            return switch (code()) {
                case 2, 12, 13, 15, 16, 17, 18, 20, 23 -> true;
                default -> false;
            };
        }
    }

    /** What a server's answer means; {@code raised} is what a function of the program has thrown, or null. */
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
            case 21, 22 -> new NoServer(failure);
            case 25 -> new Expired(failure);
            case 26 -> new Tls(failure.text(), failure.code(), null);
            case 30 -> new File(failure);
            case 31 -> new Raised(failure);
            case 32 -> new ObjectLost(failure.text(), failure.code());
            default -> new Server(failure.text(), failure.code());
        };
    }
}
