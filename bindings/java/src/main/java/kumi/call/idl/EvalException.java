package kumi.call.idl;

/** An expression has no value; the message says why. */
final class EvalException extends Exception {
    private static final long serialVersionUID = 1;

    EvalException(String message) {
        super(message, null, false, false);
    }

    static EvalException overflow() {
        return new EvalException("a number in it is beyond 64 bits");
    }

    static EvalException notAnInteger() {
        return new EvalException("it is not made of integers only");
    }

    static EvalException notANumber() {
        return new EvalException("it is not a number");
    }

    static EvalException tooDeep() {
        return new EvalException("it is nested more than " + Expr.MOST_DEPTH + " deep");
    }
}
