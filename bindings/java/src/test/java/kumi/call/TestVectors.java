package kumi.call;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The files of vectors that the Rust code writes. A test fails where they are not. */
public final class TestVectors {
    private TestVectors() {}

    /** A file of the source tree. */
    public static Path file(String path) {
        return Path.of(System.getProperty("kumi.root", "../..")).resolve(path);
    }

    /** The vectors of {@code bindings/testvectors/NAME}: maps, lists, texts, {@link java.math.BigInteger}s, booleans and nulls. */
    public static Map<?, ?> read(String name) throws IOException {
        try (JsonParser parser = new JsonFactory().createParser(file("bindings/testvectors").resolve(name).toFile())) {
            parser.nextToken();
            return (Map<?, ?>) value(parser);
        }
    }

    /** The vectors of this name in a file of several lists. */
    public static List<Map<?, ?>> section(Map<?, ?> vectors, String name) {
        List<Map<?, ?>> items = new ArrayList<>();
        ((List<?>) vectors.get(name)).forEach(item -> items.add((Map<?, ?>) item));
        return items;
    }

    /** A number that is written as its bits, in hexadecimal. */
    public static double real(Object bits) {
        return Double.longBitsToDouble(Long.parseUnsignedLong((String) bits, 16));
    }

    /** A whole number. */
    public static long whole(Object number) {
        return ((BigInteger) number).longValue();
    }

    private static Object value(JsonParser parser) throws IOException {
        JsonToken token = parser.currentToken();
        if (token == JsonToken.START_OBJECT) {
            Map<String, Object> members = new TreeMap<>();
            while (parser.nextToken() != JsonToken.END_OBJECT) {
                String name = parser.currentName();
                parser.nextToken();
                members.put(name, value(parser));
            }
            return members;
        } else if (token == JsonToken.START_ARRAY) {
            List<Object> items = new ArrayList<>();
            while (parser.nextToken() != JsonToken.END_ARRAY) {
                items.add(value(parser));
            }
            return items;
        } else if (token == JsonToken.VALUE_NUMBER_INT) {
            return parser.getBigIntegerValue();
        } else if (token == JsonToken.VALUE_NULL) {
            return null;
        }
        return token.isBoolean() ? (Object) parser.getBooleanValue() : parser.getText();
    }
}
