package kumi.call;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import kumi.call.idl.Param;
import kumi.call.idl.Routine;
import kumi.call.idl.Scalar;
import kumi.call.wire.Values.ResultHead;
import kumi.call.wire.Values.Value;

/** The results of a call, by the names of the parameters. */
public final class Result extends Named {
    private final ResultHead head;
    /** Files that came back, by parameter: the content or the path. */
    private final Object[] files;
    /** Arrays that stay at the server, by parameter. */
    private final HeldArray[] held;

    private Result(Routine routine, Array[] arrays, Scalar[] scalars, String[] texts, Object[] files, HeldArray[] held, ResultHead head) {
        super(routine, "gave no", arrays, scalars, texts);
        this.held = held;
        this.files = files;
        this.head = head;
    }

    /** The results with the values of the head, after a check against the description. */
    static Result of(Routine routine, Array[] arrays, Object[] files, HeldArray[] held, ResultHead head) {
        Scalar[] scalars = new Scalar[arrays.length];
        String[] texts = new String[arrays.length];
        for (Value value : head.values()) {
            Param param = value.param() < arrays.length ? routine.params().get(value.param()) : null;
            boolean text = param != null && param.isText() && value.text() != null;
            boolean scalar = param != null && param.scalar() != null && value.scalar() != null;
            boolean file = param != null && files[value.param()] != null && value.file() != null;
            if (!text && !scalar && !file || !param.mode().isReturned()) {
                throw new CallException.Server("the result of `" + routine.name() + "` does not fit its description", 0);
            }
            scalars[value.param()] = value.scalar();
            texts[value.param()] = value.text();
        }
        return new Result(routine, arrays, scalars, texts, files, held, head);
    }

    /** Takes an array out that stays at the server; null: there is none. */
    HeldArray takeHeld(int index) {
        HeldArray taken = held[index];
        held[index] = null;
        return taken;
    }

    /** The routine that was called. */
    @Override
    public Routine routine() {
        return super.routine();
    }

    /** How long the call waited for a slot. */
    public Duration waited() {
        return Duration.ofNanos(head.waited());
    }

    /** How long the routine ran. */
    public Duration ran() {
        return Duration.ofNanos(head.ran());
    }

    private boolean isThere(int index) {
        return arrayAt(index) != null || held[index] != null || scalarAt(index) != null || textAt(index) != null || files[index] != null;
    }

    /** The names of what came back. */
    public List<String> names() {
        return IntStream.range(0, files.length).filter(this::isThere)
                .mapToObj(index -> routine().params().get(index).name()).toList();
    }

    /** An array of 8-bit integers, or the content of a file without a path. */
    @Override
    public byte[] bytes(String name) {
        int index = routine().indexOf(name);
        return index >= 0 && files[index] instanceof byte[] content ? content : super.bytes(name);
    }

    /** An array that {@link Call#keep} has left at the server. */
    public HeldArray held(String name) {
        int index = routine().indexOf(name);
        if (index < 0 || held[index] == null) {
            throw none(name, "an array that stays at the server");
        }
        return held[index];
    }

    /** The path to which a file was written. */
    public Path path(String name) {
        int index = routine().indexOf(name);
        if (index >= 0 && files[index] instanceof Path path) {
            return path;
        }
        throw none(name, "a file that was written to a path");
    }

    private Object shown(int index) {
        if (scalarAt(index) != null) {
            return scalarAt(index);
        } else if (textAt(index) != null) {
            return "\"" + textAt(index) + "\"";
        } else if (files[index] instanceof byte[] content) {
            return content.length + " bytes";
        } else if (held[index] != null) {
            return held[index];
        }
        return files[index] != null ? files[index] : Arrays.toString(arrayAt(index).argument().sizes());
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder(routine().name()).append(" ->");
        for (String name : names()) {
            text.append(' ').append(name).append(": ").append(shown(routine().indexOf(name)));
        }
        return text.toString();
    }
}
