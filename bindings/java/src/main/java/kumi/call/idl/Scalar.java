package kumi.call.idl;

import java.math.BigDecimal;
import java.math.BigInteger;

/** A scalar value, wide enough for every element. */
public sealed interface Scalar {
    /**
     * A signed integer.
     *
     * @param value its value
     */
    record Signed(long value) implements Scalar {
        @Override
        public String toString() {
            return Long.toString(value);
        }
    }

    /**
     * An unsigned integer.
     *
     * @param bits its 64 bits
     */
    record Unsigned(long bits) implements Scalar {
        @Override
        public String toString() {
            return Long.toUnsignedString(bits);
        }
    }

    /**
     * A number.
     *
     * @param value its value
     */
    record Real(double value) implements Scalar {
        @Override
        public String toString() {
            return spelled(value);
        }
    }

    /**
     * A complex number.
     *
     * @param real its real part
     * @param imaginary its imaginary part
     */
    record Complex(double real, double imaginary) implements Scalar {
        @Override
        public String toString() {
            return "(" + spelled(real) + ", " + spelled(imaginary) + ")";
        }
    }

    /**
     * Converts a Java number.
     *
     * @throws ArithmeticException an integer that has more than 64 bits
     */
    static Scalar of(Number number) {
        if (number instanceof Double || number instanceof Float) {
            return new Real(number.doubleValue());
        }
        if (number instanceof BigInteger big) {
            if (big.signum() < 0) {
                return new Signed(big.longValueExact());
            }
            if (big.bitLength() > Long.SIZE) {
                throw new ArithmeticException("an integer of more than 64 bits");
            }
            return new Unsigned(big.longValue());
        }
        if (number instanceof BigDecimal decimal) {
            return new Real(decimal.doubleValue());
        }
        return new Signed(number.longValue());
    }

    /**
     * This value converted to the element's type; null if that cannot hold it. Examples are an integer out of range, or beyond the
     * exact integers of a floating-point type, a fraction for an integer type, and a complex number for a real type.
     */
    default Scalar fit(Element element) {
        return switch (element) {
            case I8, I16, I32, I64 -> {
                Long value = asInteger();
                yield value != null && inRange(value, element) ? new Signed(value) : null;
            }
            case U8, U16, U32 -> {
                Long value = asInteger();
                yield value != null && inRange(value, element) ? new Unsigned(value) : null;
            }
            case U64 -> {
                if (this instanceof Unsigned) {
                    yield this;
                }
                yield this instanceof Signed signed && signed.value >= 0 ? new Unsigned(signed.value) : null;
            }
            case F32, F64 -> {
                Double value = asReal();
                yield value != null && holds(value, element) ? new Real(value) : null;
            }
            case C64, C128 -> {
                Double value = asReal();
                Scalar complex = this instanceof Complex ? this : value == null ? null : new Complex(value, 0);
                boolean fits = complex instanceof Complex of && holds(of.real, element) && holds(of.imaginary, element);
                yield fits ? complex : null;
            }
        };
    }

    /** The value as a signed integer; null if it is none. */
    default Long asInteger() {
        if (this instanceof Signed signed) {
            return signed.value;
        }
        return this instanceof Unsigned unsigned && unsigned.bits >= 0 ? unsigned.bits : null;
    }

    /** The value as a real number; null if a double does not hold it exactly. */
    default Double asReal() {
        if (this instanceof Real real) {
            return real.value;
        }
        Long value = asInteger();
        long exact = 1L << 53;
        return value != null && value >= -exact && value <= exact ? Double.valueOf(value) : null;
    }

    /** Value of a text in an expression: the code of its first character in upper case, or 0 if it is empty. */
    static Scalar letter(String text) {
        if (text.isEmpty()) {
            return new Unsigned(0);
        }
        // The first byte of its UTF-8 form.
        int first = text.codePointAt(0);
        if (first >= 'a' && first <= 'z') {
            first -= 'a' - 'A';
        }
        int lead = first < 0x80 ? first : first < 0x800 ? 0xC0 | first >> 6
                : first < 0x1_0000 ? 0xE0 | first >> 12 : 0xF0 | first >> 18;
        return new Unsigned(lead);
    }

    private static boolean inRange(long value, Element element) {
        if (element == Element.I64) {
            return true;
        }
        int bits = 8 * element.size();
        return element.isUnsigned() ? value >= 0 && value >> bits == 0
                : value >> bits - 1 == 0 || value >> bits - 1 == -1;
    }

    /** Whether a finite value stays finite in the element's type; infinities and NaN always fit. */
    private static boolean holds(double value, Element element) {
        boolean single = element == Element.F32 || element == Element.C64;
        return !single || !Double.isFinite(value) || Float.isFinite((float) value);
    }

    /** A number in the notation of descriptions. */
    static String spelled(double value) {
        double size = Math.abs(value);
        if (value == 0 || !Double.isFinite(value) || size >= 1e-5 && size < 1e16) {
            if (!Double.isFinite(value)) {
                return Double.isNaN(value) ? "NaN" : value > 0 ? "inf" : "-inf";
            }
            String plain = new BigDecimal(Double.toString(value)).toPlainString();
            plain = value == 0 && 1 / value < 0 ? "-0.0" : plain;
            return plain.contains(".") ? plain : plain + ".0";
        }
        return Double.toString(value).replace(".0E", "e").replace("E", "e");
    }
}
