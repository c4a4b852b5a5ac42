package kumi.call;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import kumi.call.idl.Copies;
import kumi.call.idl.Element;

/** Numbers in memory: an array of primitive numbers or a buffer of them. A {@link ByteBuffer} may hold numbers of any type. */
final class Numbers implements Exchange.Source {
    /** The caller's array or buffer. */
    private final Object owner;
    private final Buffer buffer;
    /** Bytes of one number. */
    private final int width;

    private Numbers(Object owner, Buffer buffer, int width) {
        this.owner = owner;
        this.buffer = buffer;
        this.width = width;
    }

    /** The numbers of an array or buffer (between its position and limit); null: it is neither. */
    static Numbers of(Object owner) {
        if (owner instanceof double[] array) {
            return new Numbers(owner, DoubleBuffer.wrap(array), Double.BYTES);
        } else if (owner instanceof float[] array) {
            return new Numbers(owner, FloatBuffer.wrap(array), Float.BYTES);
        } else if (owner instanceof int[] array) {
            return new Numbers(owner, IntBuffer.wrap(array), Integer.BYTES);
        } else if (owner instanceof long[] array) {
            return new Numbers(owner, LongBuffer.wrap(array), Long.BYTES);
        } else if (owner instanceof short[] array) {
            return new Numbers(owner, ShortBuffer.wrap(array), Short.BYTES);
        } else if (owner instanceof byte[] array) {
            return new Numbers(owner, ByteBuffer.wrap(array), 1);
        } else if (owner instanceof Buffer given) {
            int width = given instanceof DoubleBuffer || given instanceof LongBuffer ? Long.BYTES
                    : given instanceof FloatBuffer || given instanceof IntBuffer ? Integer.BYTES
                    : given instanceof ShortBuffer ? Short.BYTES : given instanceof ByteBuffer ? 1 : 0;
            return width == 0 ? null : new Numbers(owner, given.slice(), width);
        }
        return null;
    }

    /** Memory for this many elements: an array of the matching Java type, with two numbers for each complex one. */
    static Numbers allocate(Element element, long elements) {
        int count = Math.toIntExact(elements * slots(element));
        return of(switch (element) {
            case I8, U8 -> new byte[count];
            case I16, U16 -> new short[count];
            case I32, U32 -> new int[count];
            case I64, U64 -> new long[count];
            case F32, C64 -> new float[count];
            case F64, C128 -> new double[count];
        });
    }

    /** Numbers per element: 2 for complex ones. */
    static int slots(Element element) {
        return element == Element.C64 || element == Element.C128 ? 2 : 1;
    }

    /** The array or buffer. */
    Object owner() {
        return owner;
    }

    /** Whether these can be numbers of the element. */
    boolean fits(Element element) {
        if (owner instanceof ByteBuffer) {
            return true;
        }
        boolean real = buffer instanceof DoubleBuffer || buffer instanceof FloatBuffer;
        return width == element.size() / slots(element) && real != element.isInteger();
    }

    /** The type of elements that they are by themselves; null: bytes of a buffer, which may hold any. */
    Element element() {
        return owner instanceof ByteBuffer ? null : buffer instanceof DoubleBuffer ? Element.F64 : buffer instanceof FloatBuffer ? Element.F32
                : buffer instanceof LongBuffer ? Element.I64 : buffer instanceof IntBuffer ? Element.I32
                : buffer instanceof ShortBuffer ? Element.I16 : Element.I8;
    }

    /** Their type, for messages. */
    String kind() {
        return buffer instanceof DoubleBuffer ? "double" : buffer instanceof FloatBuffer ? "float"
                : buffer instanceof LongBuffer ? "long" : buffer instanceof IntBuffer ? "int"
                : buffer instanceof ShortBuffer ? "short" : "byte";
    }

    boolean isReadOnly() {
        return buffer.isReadOnly();
    }

    long bytes() {
        return (long) buffer.limit() * width;
    }

    /** Copies all bytes to the same number of bytes in numbers. */
    void copyTo(Numbers into) {
        ByteBuffer some = ByteBuffer.allocate(64 << 10).order(ByteOrder.LITTLE_ENDIAN);
        for (long at = 0; at < bytes(); at += some.limit()) {
            some.clear().limit((int) Math.min(some.capacity(), bytes() - at));
            read(at, some);
            into.write(at, some.flip());
        }
    }

    /** A new array of the element with the same contents. */
    Numbers copy(Element element) {
        ByteBuffer all = ByteBuffer.allocate(Math.toIntExact(bytes())).order(ByteOrder.LITTLE_ENDIAN);
        read(0, all);
        Numbers copy = allocate(element, bytes() / element.size());
        copy.write(0, all.flip());
        return copy;
    }

    @Override
    public ByteBuffer direct(long offset, int length) {
        return buffer instanceof ByteBuffer bytes && bytes.isDirect() ? bytes.slice((int) offset, length) : null;
    }

    /** Copies bytes from {@code offset}, a number's first byte, until {@code into} is full of whole numbers. */
    @Override
    public void read(long offset, ByteBuffer into) {
        int at = (int) (offset / width);
        int count = into.remaining() / width;
        ByteBuffer place = into.slice().order(ByteOrder.LITTLE_ENDIAN);
        if (buffer instanceof DoubleBuffer numbers) {
            place.asDoubleBuffer().put(0, numbers, at, count);
        } else if (buffer instanceof FloatBuffer numbers) {
            place.asFloatBuffer().put(0, numbers, at, count);
        } else if (buffer instanceof LongBuffer numbers) {
            place.asLongBuffer().put(0, numbers, at, count);
        } else if (buffer instanceof IntBuffer numbers) {
            place.asIntBuffer().put(0, numbers, at, count);
        } else if (buffer instanceof ShortBuffer numbers) {
            place.asShortBuffer().put(0, numbers, at, count);
        } else {
            place.put(0, (ByteBuffer) buffer, at, count);
        }
        into.position(into.position() + count * width);
    }

    /** Writes whole numbers at {@code offset}, a number's first byte. */
    private void write(long offset, ByteBuffer from) {
        int at = (int) (offset / width);
        int count = from.remaining() / width;
        ByteBuffer source = from.slice().order(ByteOrder.LITTLE_ENDIAN);
        if (buffer instanceof DoubleBuffer numbers) {
            numbers.put(at, source.asDoubleBuffer(), 0, count);
        } else if (buffer instanceof FloatBuffer numbers) {
            numbers.put(at, source.asFloatBuffer(), 0, count);
        } else if (buffer instanceof LongBuffer numbers) {
            numbers.put(at, source.asLongBuffer(), 0, count);
        } else if (buffer instanceof IntBuffer numbers) {
            numbers.put(at, source.asIntBuffer(), 0, count);
        } else if (buffer instanceof ShortBuffer numbers) {
            numbers.put(at, source.asShortBuffer(), 0, count);
        } else {
            ((ByteBuffer) buffer).put(at, source, 0, count);
        }
        from.position(from.position() + count * width);
    }

    /** A destination of bytes that come in order from {@code begin}, a number's first byte. Each attempt needs its own. */
    Exchange.Destination destination(long begin) {
        return new Receiver(begin);
    }

    /** Puts pieces of any length together to whole numbers. */
    private final class Receiver implements Exchange.Destination {
        private final long begin;
        /** The first bytes of a number whose rest has not come. */
        private final ByteBuffer carry = ByteBuffer.allocate(width).order(ByteOrder.LITTLE_ENDIAN);

        Receiver(long begin) {
            this.begin = begin;
        }

        @Override
        public void put(long offset, ByteBuffer from) {
            long at = begin + offset;
            while (carry.position() > 0 && from.hasRemaining()) {
                carry.put(from.get());
                at++;
                if (!carry.hasRemaining()) {
                    write(at - width, carry.flip());
                    carry.clear();
                }
            }
            int whole = from.remaining() / width * width;
            if (whole > 0) {
                write(at, from.slice(from.position(), whole));
                from.position(from.position() + whole);
            }
            carry.put(from);
        }
    }

    /** Packs the section that travels, in its order. */
    void pack(Copies copies, Element element, ByteBuffer packed) {
        move(copies, element, packed, true);
    }

    /** Unpacks a received section to its places. */
    void unpack(Copies copies, Element element, ByteBuffer packed) {
        move(copies, element, packed, false);
    }

    private void move(Copies copies, Element element, ByteBuffer packed, boolean gather) {
        int size = element.size();
        int slots = size / width;
        if (buffer instanceof DoubleBuffer numbers && slots == 1) {
            DoubleBuffer travels = packed.asDoubleBuffer();
            copies.each(gather ? (to, from) -> travels.put(to, numbers.get(from))
                    : (from, to) -> numbers.put(to, travels.get(from)));
            return;
        }
        // Number by number, as bytes.
        ByteBuffer one = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
        copies.each((in, out) -> {
            one.clear();
            if (gather) {
                read((long) out * size, one);
                packed.put(in * size, one.array());
            } else {
                packed.get(in * size, one.array());
                write((long) out * size, one);
            }
        });
    }
}
