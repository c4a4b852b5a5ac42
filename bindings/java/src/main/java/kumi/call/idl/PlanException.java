package kumi.call.idl;

/** Why there is no plan for a call: arguments that do not fit the description, or a description that cannot be. */
public final class PlanException extends Exception {
    private static final long serialVersionUID = 1;

    /** What does not fit. */
    public enum Kind {
        /** Another number of values than parameters. */
        COUNT,
        /** A scalar without value and default. */
        MISSING,
        /** A value for what takes none. */
        UNEXPECTED,
        /** A value that the parameter's type cannot hold. */
        MISFIT,
        /** An expression without value. */
        EXPRESSION,
        /** A size below zero. */
        NEGATIVE,
        /** A section that is not inside its array, or goes backwards. */
        OUTSIDE,
        /** More dimensions than allowed. */
        DIMENSIONS,
        /** More memory than allowed. */
        TOO_LARGE,
        /** Defaults that need each other. */
        CYCLE
    }

    private final Kind kind;
    private final String param;

    PlanException(Kind kind, String param, String message) {
        super(message);
        this.kind = kind;
        this.param = param;
    }

    /** What does not fit. */
    public Kind kind() {
        return kind;
    }

    /** The parameter's name; of {@link Kind#COUNT} that of the routine. */
    public String param() {
        return param;
    }
}
