package kumi.call;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** A server that does what a test says. */
final class FakeServer implements AutoCloseable {
    /** The description of {@code f()}. */
    static final String ROUTINE = "{\"version\":1,\"name\":\"f\",\"params\":[],"
            + "\"target\":{\"language\":\"c\",\"symbol\":\"f\",\"arguments\":[]}}";

    /** What is done with a connection. */
    interface Script {
        void run(Peer peer) throws IOException;
    }

    private final ServerSocket socket;
    private final Thread thread;

    FakeServer(Script script) throws IOException {
        socket = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        thread = new Thread(() -> {
            while (!socket.isClosed()) {
                try (Socket one = socket.accept()) {
                    script.run(new Peer(one));
                } catch (IOException gone) {
                    // The client has had enough, or the test has.
                    continue;
                }
            }
        }, "fake server");
        thread.setDaemon(true);
        thread.start();
    }

    String address() {
        return "127.0.0.1:" + socket.getLocalPort();
    }

    KumiClient client() {
        return KumiClient.connect(address());
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException gone) {
            throw new IllegalStateException(gone);
        }
    }

    /** A frame that came. */
    record Frame(int kind, int stream, int argument, byte[] body) {}

    /** PLACED's body: an attempt of a call, at the server {@code s} of this address. */
    static byte[] placed(long call, int attempt, String address) {
        byte[] text = address.getBytes(StandardCharsets.UTF_8);
        ByteBuffer out = ByteBuffer.allocate(12 + 2 + text.length + 2 + 1).order(ByteOrder.LITTLE_ENDIAN);
        out.putLong(call).putInt(attempt).putShort((short) text.length).put(text).putShort((short) 1);
        return out.put((byte) 's').array();
    }

    /** The other end. */
    static final class Peer {
        private final Socket socket;
        private final DataInputStream in;

        Peer(Socket socket) throws IOException {
            this.socket = socket;
            socket.setTcpNoDelay(true);
            in = new DataInputStream(socket.getInputStream());
        }

        private ByteBuffer read(int count) throws IOException {
            byte[] bytes = in.readNBytes(Math.min(Math.max(0, count), 1 << 20));
            if (bytes.length != count) {
                throw new IOException("it has gone");
            }
            return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        }

        /** Takes a hello and answers it. */
        void greet(int streams, long bytes) throws IOException {
            greet(streams, bytes, false, new byte[0]);
        }

        /** Takes a hello and answers it as a metaserver does. */
        void greetAsMetaserver() throws IOException {
            greet(8, Long.MAX_VALUE, true, new byte[0]);
        }

        /** Takes a hello and answers it as a metaserver does that sends calls to the server of their arrays. */
        void greetAsMetaserverThatBinds() throws IOException {
            greet(8, Long.MAX_VALUE, true, field(14, 1));
        }

        /** Takes a hello and answers it, with a field of this tag and content. */
        void greetWithField(int tag, int... content) throws IOException {
            greet(8, Long.MAX_VALUE, false, field(tag, content));
        }

        private static byte[] field(int tag, int... content) {
            ByteBuffer field = ByteBuffer.allocate(4 + content.length).order(ByteOrder.LITTLE_ENDIAN);
            field.putShort((short) tag).putShort((short) content.length);
            for (int one : content) {
                field.put((byte) one);
            }
            return field.array();
        }

        private void greet(int streams, long bytes, boolean meta, byte[] more) throws IOException {
            in.readNBytes(12);
            read(read(4).getInt());
            ByteBuffer hello = ByteBuffer.allocate(16 + 8 + 12 + 5 + more.length).order(ByteOrder.LITTLE_ENDIAN);
            hello.put("KUMICALL".getBytes(StandardCharsets.US_ASCII)).putShort((short) 1).putShort((short) 1);
            hello.putInt(25 + more.length).putShort((short) 4).putShort((short) 4).putInt(streams);
            hello.putShort((short) 5).putShort((short) 8).putLong(bytes);
            hello.putShort((short) 7).putShort((short) 1).put((byte) (meta ? 1 : 0)).put(more);
            write(hello.array());
        }

        /** Takes a hello and refuses it with an error. */
        void refuse(int code, String text) throws IOException {
            in.readNBytes(12);
            read(read(4).getInt());
            byte[] sentence = text.getBytes(StandardCharsets.UTF_8);
            ByteBuffer hello = ByteBuffer.allocate(16 + 4 + 10 + sentence.length).order(ByteOrder.LITTLE_ENDIAN);
            hello.put("KUMICALL".getBytes(StandardCharsets.US_ASCII)).putShort((short) 0).putShort((short) 1);
            hello.putInt(4 + 10 + sentence.length).putShort((short) 6).putShort((short) (10 + sentence.length));
            write(hello.putShort((short) code).putLong(0).put(sentence).array());
        }

        /** Names the place of an attempt of a call, at a server of this address. */
        void place(int stream, long call, int attempt, String address) throws IOException {
            frame(33, stream, 0, placed(call, attempt, address));
        }

        Frame next() throws IOException {
            ByteBuffer header = read(12);
            int length = header.getInt();
            int stream = header.getInt();
            int kind = header.get() & 0xff;
            header.get();
            int argument = header.getShort();
            return new Frame(kind, stream, argument, in.readNBytes(length));
        }

        void write(byte[] bytes) throws IOException {
            socket.getOutputStream().write(bytes);
            socket.getOutputStream().flush();
        }

        void header(int length, int stream, int kind, int argument) throws IOException {
            ByteBuffer header = ByteBuffer.allocate(12).order(ByteOrder.LITTLE_ENDIAN);
            write(header.putInt(length).putInt(stream).put((byte) kind).put((byte) 0).putShort((short) argument).array());
        }

        void frame(int kind, int stream, int argument, byte[] body) throws IOException {
            header(body.length, stream, kind, argument);
            write(body);
        }

        /** Answers the next frame with this description. */
        void describe(String json) throws IOException {
            ByteArrayOutputStream body = new ByteArrayOutputStream();
            body.write(new byte[8]);
            body.write(json.getBytes(StandardCharsets.UTF_8));
            frame(8, next().stream(), 0, body.toByteArray());
        }

        /** A call has failed with this code of the protocol. */
        void fail(int stream, int code, String text) throws IOException {
            byte[] sentence = text.getBytes(StandardCharsets.UTF_8);
            ByteBuffer body = ByteBuffer.allocate(10 + sentence.length).order(ByteOrder.LITTLE_ENDIAN);
            frame(Frames.ERROR, stream, 0, body.putShort((short) code).putLong(0).put(sentence).array());
        }

        /** A result without values. */
        void result(int stream) throws IOException {
            frame(10, stream, 0, new byte[18]);
        }

        /** Says that nothing more comes. */
        void end() throws IOException {
            socket.shutdownOutput();
        }

        /** Reads until the client ends it. */
        void drain() throws IOException {
            in.transferTo(java.io.OutputStream.nullOutputStream());
        }
    }
}
