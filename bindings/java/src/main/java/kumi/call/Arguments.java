package kumi.call;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import kumi.call.idl.Element;
import kumi.call.idl.Param;
import kumi.call.idl.Routine;
import kumi.call.idl.Scalar;
import kumi.call.idl.Type;

/** The arguments of a caller, assigned to parameters. */
final class Arguments {
    private final List<Object> positional = new ArrayList<>();
    private final Map<String, Object> named = new LinkedHashMap<>();
    private final Map<String, Object> into = new LinkedHashMap<>();
    /** How long results stay at the server. */
    private final Map<String, Duration> keep = new LinkedHashMap<>();
    /** The inputs by parameter, if they were {@link #recorded}; otherwise null. */
    private Object[] inputs;

    void add(Object... values) {
        // A matrix alone is an array of objects itself.
        if (values == null || values instanceof double[][]) {
            positional.add(values);
        } else {
            positional.addAll(Arrays.asList(values));
        }
    }

    void set(String param, Object value) {
        if (named.putIfAbsent(param, value) != null) {
            throw new IllegalArgumentException("`" + param + "` is set twice");
        }
    }

    void keep(String param, Duration time) {
        if (into.containsKey(param) || keep.putIfAbsent(param, time) != null) {
            throw new IllegalArgumentException("`" + param + "` has two places");
        }
    }

    void into(String param, Object place) {
        if (keep.containsKey(param) || into.putIfAbsent(param, place) != null) {
            throw new IllegalArgumentException("`" + param + "` has two places");
        }
    }

    /**
     * The inputs as they are now. Numbers and texts are copied; arrays are not, and are read when the call is sent.
     *
     * @throws CallException.Argument there are too many or too few
     */
    Arguments recorded(Routine routine) {
        Arguments now = new Arguments();
        now.inputs = sent(routine);
        for (int index = 0; index < now.inputs.length; index++) {
            now.inputs[index] = copy(routine.params().get(index), now.inputs[index]);
        }
        return now;
    }

    /** A number or a text that does not change any more. What is none where one is wanted stays for the check. */
    private static Object copy(Param param, Object value) {
        if (value == null || param.isArray()) {
            return value;
        } else if (param.isText()) {
            return value instanceof CharSequence ? value.toString() : value;
        }
        try {
            Scalar scalar = param.scalar() == null ? null : scalar(param.scalar(), value);
            return scalar == null ? value : scalar;
        } catch (ArithmeticException beyond) {
            return value;
        }
    }

    /** The inputs by parameter; null: the default, or a size that follows from an array. */
    Object[] sent(Routine routine) {
        if (inputs != null) {
            return inputs.clone();
        }
        List<Param> params = routine.params();
        Object[] values = new Object[params.size()];
        boolean[] set = new boolean[params.size()];
        named.forEach((name, value) -> {
            int index = routine.indexOf(name);
            if (index < 0 || !params.get(index).mode().isSent()) {
                throw wrong(routine, "takes no `" + name + "`");
            }
            values[index] = value;
            set[index] = true;
        });
        List<Integer> open = IntStream.range(0, params.size()).boxed()
                .filter(index -> params.get(index).mode().isSent() && !set[index]).toList();
        List<Integer> needed = open.stream().filter(index -> !routine.isOptional(index)).toList();
        List<Integer> chosen = positional.size() == open.size() ? open : needed;
        if (positional.size() != chosen.size()) {
            String both = open.size() == needed.size() ? "" : ", or " + needed.size()
                    + " without those that follow from others";
            throw wrong(routine, "takes " + open.size() + (named.isEmpty() ? "" : " more") + " arguments" + both + "; "
                    + positional.size() + " were given");
        }
        for (int at = 0; at < chosen.size(); at++) {
            values[chosen.get(at)] = positional.get(at);
        }
        return values;
    }

    /** The destinations of results by parameter; null: a new array. */
    Object[] places(Routine routine) {
        Object[] places = new Object[routine.params().size()];
        into.forEach((name, place) -> {
            int index = routine.indexOf(name);
            Param param = index < 0 ? null : routine.params().get(index);
            boolean file = param != null && param.type() instanceof Type.File;
            if (param == null || !param.isArray() && !file || !param.mode().isReturned()) {
                throw wrong(routine, "gives no array and no file `" + name + "`");
            }
            if (file && !(place instanceof Path)) {
                throw wrong(routine, "gives a file `" + name + "`, for which a Path is a place");
            }
            places[index] = place;
        });
        return places;
    }

    /** How long the results stay at the server, by parameter; null: it comes back. */
    Duration[] kept(Routine routine) {
        Duration[] kept = new Duration[routine.params().size()];
        keep.forEach((name, time) -> {
            int index = routine.indexOf(name);
            if (index < 0 || !routine.params().get(index).isArray() || !routine.params().get(index).mode().isReturned()) {
                throw wrong(routine, "gives no array `" + name + "`");
            }
            kept[index] = time;
        });
        return kept;
    }

    /**
     * The scalar that a caller passed; null: the value is no scalar.
     *
     * @throws ArithmeticException an integer of too many bits
     */
    static Scalar scalar(Element element, Object value) {
        if (value instanceof Number number) {
            return Scalar.of(number);
        } else if (value instanceof Scalar scalar) {
            return scalar;
        }
        boolean complex = element == Element.C64 || element == Element.C128;
        return complex && value instanceof double[] parts && parts.length == 2
                ? new Scalar.Complex(parts[0], parts[1]) : null;
    }

    /** Why a text cannot be sent; null: it can. */
    static String wrongText(String text) {
        if (text.indexOf('\0') >= 0) {
            return "a text with a zero byte";
        }
        return StandardCharsets.UTF_8.newEncoder().canEncode(text) ? null : "a text with half a character";
    }

    private static CallException.Argument wrong(Routine routine, String what) {
        return new CallException.Argument("`" + routine.name() + "` " + what + ": " + routine);
    }
}
