package kumi.call.idl;

/** The JSON is not a description of a routine. */
public final class DescriptionException extends Exception {
    private static final long serialVersionUID = 1;

    DescriptionException(String message) {
        super(message);
    }
}
