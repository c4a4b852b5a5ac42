package kumi.call.idl;

import java.util.List;

/** Type of a parameter. */
public sealed interface Type {
    /**
     * A number, or an array of them.
     *
     * @param element the number's type
     */
    record Number(Element element) implements Type {}

    /** Bytes of text. */
    record Text() implements Type {}

    /** A file: its content travels. */
    record File() implements Type {}

    /**
     * A callback: a function of the client that the routine may call.
     *
     * @param params its parameters
     */
    record Callback(List<Param> params) implements Type {}
}
