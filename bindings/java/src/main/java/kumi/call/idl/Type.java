package kumi.call.idl;

import java.util.List;

/** What a parameter is. */
public sealed interface Type {
    /**
     * A number, or an array of them.
     *
     * @param element the number's type
     */
    record Number(Element element) implements Type {}

    /** Bytes of text. */
    record Text() implements Type {}

    /** A file: its contents travel. */
    record File() implements Type {}

    /**
     * A function of the client that the routine may call.
     *
     * @param params what it takes
     */
    record Callback(List<Param> params) implements Type {}
}
