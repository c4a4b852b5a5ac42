package kumi.call;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import kumi.call.idl.Mode;
import kumi.call.idl.Param;
import kumi.call.idl.Routine;
import kumi.call.idl.Type;

/** Arguments as a caller gave them, and which parameters they are for. */
final class Arguments {
    private final List<Object> positional = new ArrayList<>();
    private final Map<String, Object> named = new LinkedHashMap<>();
    private final Map<String, Object> into = new LinkedHashMap<>();

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

    void into(String param, Object place) {
        if (into.putIfAbsent(param, place) != null) {
            throw new IllegalArgumentException("`" + param + "` has two places");
        }
    }

    /** What is sent, by parameter; null: the default, or what follows from an array. */
    Object[] sent(Routine routine) {
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
        for (int index = 0; index < values.length; index++) {
            Param param = params.get(index);
            if (param.mode() != Mode.WORK && (param.type() instanceof Type.File || param.type() instanceof Type.Callback)) {
                throw wrong(routine, "has `" + param.name() + "`, a file or a callback, which this client cannot pass");
            }
        }
        return values;
    }

    /** Where results go, by parameter; null: into new arrays. */
    Object[] places(Routine routine) {
        Object[] places = new Object[routine.params().size()];
        into.forEach((name, place) -> {
            int index = routine.indexOf(name);
            Param param = index < 0 ? null : routine.params().get(index);
            if (param == null || !param.isArray() || !param.mode().isReturned()) {
                throw wrong(routine, "gives no array `" + name + "`");
            }
            places[index] = place;
        });
        return places;
    }

    private static CallException.Argument wrong(Routine routine, String what) {
        return new CallException.Argument("`" + routine.name() + "` " + what + ": " + routine);
    }
}
