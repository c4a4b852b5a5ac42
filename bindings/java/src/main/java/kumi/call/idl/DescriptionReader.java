package kumi.call.idl;

import java.io.IOException;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Reads the canonical JSON of a description. It skips the part for servers ({@code target}). */
final class DescriptionReader {
    private DescriptionReader() {}

    static Routine read(byte[] json) throws DescriptionException {
        if (json.length > Routine.MOST_JSON) {
            throw new DescriptionException("a description of " + json.length + " bytes is more than the "
                    + Routine.MOST_JSON + " that are read");
        }
        try {
            return routine(Json.read(json));
        } catch (IOException | IllegalArgumentException wrong) {
            throw new DescriptionException("this is no interface description: " + wrong.getMessage());
        }
    }

    private static IllegalArgumentException wrong(String what) {
        return new IllegalArgumentException(what);
    }

    /** The members of an object. Each is removed when read; none may remain. */
    private static final class Members {
        private final Map<String, Object> left;

        Members(Object value) {
            if (!(value instanceof Map<?, ?> map)) {
                throw wrong("an object is missing");
            }
            left = new HashMap<>();
            map.forEach((name, member) -> left.put((String) name, member));
        }

        /** A member, or null. */
        Object take(String name) {
            Object value = left.remove(name);
            return value == Json.NULL ? null : value;
        }

        Object need(String name) {
            Object value = take(name);
            if (value == null) {
                throw wrong("`" + name + "` is missing");
            }
            return value;
        }

        String text(String name) {
            // A text may be missing, but not be null.
            return left.containsKey(name) ? asText(left.remove(name)) : "";
        }

        void end() {
            if (!left.isEmpty()) {
                throw wrong("`" + left.keySet().iterator().next() + "` is not known");
            }
        }
    }

    private static String asText(Object value) {
        if (value instanceof String text) {
            return text;
        }
        throw wrong("a text is missing");
    }

    private static List<?> asList(Object value) {
        if (value instanceof List<?> list) {
            return list;
        }
        throw wrong("an array is missing");
    }

    private static List<?> asList(Object value, int length) {
        List<?> list = asList(value);
        if (list.size() != length) {
            throw wrong("an array of " + length + " is missing");
        }
        return list;
    }

    /** An unsigned number of 32 bits, as an int with the same bits. */
    private static int asIndex(Object value) {
        if (value instanceof BigInteger number && number.signum() >= 0 && number.bitLength() <= Integer.SIZE) {
            return number.intValue();
        }
        throw wrong("an index is missing");
    }

    private static <E extends Enum<E>> E asEnum(Class<E> kind, Object value) {
        String text = asText(value);
        if (!text.equals(text.toLowerCase(Locale.ROOT))) {
            throw wrong("`" + text + "` is not known");
        }
        return Enum.valueOf(kind, text.toUpperCase(Locale.ROOT));
    }

    private static Routine routine(Object json) {
        Members members = new Members(json);
        int version = asIndex(members.need("version"));
        if (version != Routine.VERSION) {
            throw wrong("it is of version " + Integer.toUnsignedString(version) + "; version " + Routine.VERSION
                    + " is understood");
        }
        String name = asText(members.need("name"));
        String className = members.text("class");
        String doc = members.text("doc");
        List<Param> params = params(members.need("params"));
        Object order = members.take("calc_order");
        Expr calcOrder = order == null ? null : expr(order);
        boolean idempotent = Boolean.TRUE.equals(members.take("idempotent"));
        Object split = members.take("split");
        Object status = members.take("status");
        if (split != null) {
            asIndex(split);
        }
        int statusIndex = status == null ? -1 : asIndex(status);
        if (status != null && statusIndex < 0) {
            throw wrong("the status is no parameter");
        }
        // The number of ranks matters to the server only.
        members.take("parallel");
        members.need("target");
        members.end();
        return new Routine(name, doc, params, calcOrder, idempotent, statusIndex, className);
    }

    private static List<Param> params(Object json) {
        List<Param> params = new ArrayList<>();
        for (Object param : asList(json)) {
            params.add(param(param));
        }
        return List.copyOf(params);
    }

    private static Param param(Object json) {
        Members members = new Members(json);
        String name = asText(members.need("name"));
        Mode mode = asEnum(Mode.class, members.need("mode"));
        Type type = type(members.need("type"));
        List<Dimension> dims = new ArrayList<>();
        Object given = members.take("dims");
        for (Object dimension : given == null ? List.of() : asList(given)) {
            dims.add(dimension(dimension));
        }
        Object order = members.take("order");
        Expr usual = optional(members.take("default"));
        String doc = members.text("doc");
        members.end();
        return new Param(name, mode, type, List.copyOf(dims),
                order == null ? Order.ROW : asEnum(Order.class, order), usual, doc);
    }

    private static Type type(Object json) {
        if ("string".equals(json)) {
            return new Type.Text();
        }
        if ("file".equals(json)) {
            return new Type.File();
        }
        Map.Entry<String, Object> only = only(json);
        if (only.getKey().equals("callback")) {
            return new Type.Callback(params(only.getValue()));
        }
        if (only.getKey().equals("number")) {
            for (Element element : Element.values()) {
                if (element.json().equals(only.getValue())) {
                    return new Type.Number(element);
                }
            }
        }
        throw wrong("the type `" + only.getKey() + "` is not known");
    }

    private static Dimension dimension(Object json) {
        Members members = new Members(json);
        Dimension dimension = new Dimension(expr(members.need("size")), optional(members.take("start")),
                optional(members.take("end")), optional(members.take("step")));
        members.end();
        return dimension;
    }

    /** The only member of an object. */
    private static Map.Entry<String, Object> only(Object json) {
        if (json instanceof Map<?, ?> map && map.size() == 1) {
            Map.Entry<?, ?> entry = map.entrySet().iterator().next();
            return Map.entry((String) entry.getKey(), entry.getValue());
        }
        throw wrong("an object with one member is missing");
    }

    private static Expr optional(Object json) {
        return json == null ? null : expr(json);
    }

    // The depth is that of the JSON, which is bounded.
    private static Expr expr(Object json) {
        Map.Entry<String, Object> only = only(json);
        Object value = only.getValue();
        switch (only.getKey()) {
            case "int":
                if (value instanceof BigInteger number && number.bitLength() < Long.SIZE) {
                    return new Expr.Int(number.longValue());
                }
                throw wrong("an integer is missing");
            case "real":
                if (value instanceof Number number) {
                    return new Expr.Real(number.doubleValue());
                }
                throw wrong("a number is missing");
            case "text":
                return new Expr.Text(asText(value));
            case "param":
                return new Expr.Param(asIndex(value));
            case "unary":
                List<?> one = asList(value, 2);
                return new Expr.Unary(asEnum(Expr.UnaryOperation.class, one.get(0)), expr(one.get(1)));
            case "binary":
                List<?> two = asList(value, 3);
                return new Expr.Binary(
                        asEnum(Expr.BinaryOperation.class, two.get(0)), expr(two.get(1)), expr(two.get(2)));
            case "if":
                List<?> three = asList(value, 3);
                return new Expr.If(expr(three.get(0)), expr(three.get(1)), expr(three.get(2)));
            case "call":
                List<?> call = asList(value, 2);
                List<Expr> arguments = new ArrayList<>();
                for (Object argument : asList(call.get(1))) {
                    arguments.add(expr(argument));
                }
                return new Expr.Call(asEnum(Expr.Function.class, call.get(0)), List.copyOf(arguments));
            default:
                throw wrong("the expression `" + only.getKey() + "` is not known");
        }
    }
}
