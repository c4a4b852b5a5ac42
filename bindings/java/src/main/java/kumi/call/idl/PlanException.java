package kumi.call.idl;

/** There is no plan for a call: arguments do not fit the description, or the description is invalid. */
public final class PlanException extends Exception {
    private static final long serialVersionUID = 1;

    /** Kind of mismatch. */
    public enum Kind {
        /** The number of values differs from the number of parameters. */
        COUNT,
        /** A scalar without value and default. */
        MISSING,
        /** A value for a parameter that takes none. */
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

    /** The kind of mismatch. */
    public Kind kind() {
        return kind;
    }

    /** The parameter's name; for {@link Kind#COUNT} the routine's. */
    public String param() {
        return param;
    }
}
