package kumi.call;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.InvalidPathException;
import java.security.GeneralSecurityException;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** A byte stream in both directions. One thread reads while another writes; a third may close it, which ends both. */
interface Transport {
    /** Reads some bytes; -1: the other side has closed the stream. */
    int read(ByteBuffer into) throws IOException;

    /** Writes all bytes. */
    void write(ByteBuffer... pieces) throws IOException;

    /** Closes it at once. */
    void close();

    /** Connects to {@code HOST:PORT}, {@code kumi://HOST:PORT}, {@code tls://HOST:PORT} or {@code unix:PATH}. */
    static Transport connect(String address, ClientOptions options) {
        try {
            if (address.startsWith("unix:")) {
                SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
                return connected(channel, UnixDomainSocketAddress.of(address.substring("unix:".length())), 0);
            }
            boolean tls = address.startsWith("tls://");
            String bare = tls ? address.substring(6) : address.startsWith("kumi://") ? address.substring(7) : address;
            int colon = bare.lastIndexOf(':');
            String host = colon < 0 ? "" : bare.substring(0, colon);
            int port = port(bare.substring(colon + 1));
            boolean numeric = host.startsWith("[") && host.endsWith("]");
            host = numeric ? host.substring(1, host.length() - 1) : host;
            if (host.isEmpty() || port < 0 || !numeric && host.contains(":")) {
                throw new CallException.Argument(
                        address + " is no address of a server: give HOST:PORT, tls://HOST:PORT or unix:PATH");
            }
            int time = Timer.milliseconds(options.connectTime());
            return tls ? encrypted(host, port, time, options) : plain(host, port, time);
        } catch (InvalidPathException wrong) {
            throw new CallException.Argument(address + " names no socket: " + wrong.getMessage());
        } catch (SSLException insecure) {
            throw new CallException.Tls("no secure connection to " + address + ": " + insecure.getMessage(), 0, insecure);
        } catch (IOException | GeneralSecurityException | UnsupportedOperationException refused) {
            throw new CallException.Connect("the server at " + address + " cannot be reached: "
                    + (refused.getMessage() == null ? refused.toString() : refused.getMessage()), refused);
        }
    }

    private static int port(String text) {
        try {
            int port = Integer.parseInt(text);
            return port > 0xffff ? -1 : port;
        } catch (NumberFormatException none) {
            return -1;
        }
    }

    private static Transport plain(String host, int port, int time) throws IOException {
        IOException error = null;
        for (InetAddress found : InetAddress.getAllByName(host)) {
            try {
                SocketChannel channel = SocketChannel.open();
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                return connected(channel, new InetSocketAddress(found, port), time);
            } catch (IOException refused) {
                error = refused;
            }
        }
        throw error == null ? new IOException("the name has no address") : error;
    }

    private static Transport connected(SocketChannel channel, SocketAddress address, int time) throws IOException {
        try {
            if (time == 0) {
                channel.connect(address);
            } else {
                channel.socket().connect(address, time);
            }
            return new Channel(channel);
        } catch (IOException | RuntimeException wrong) {
            channel.close();
            throw wrong;
        }
    }

    private static Transport encrypted(String host, int port, int time, ClientOptions options)
            throws IOException, GeneralSecurityException {
        Socket plain = new Socket();
        try {
            plain.setTcpNoDelay(true);
            plain.connect(new InetSocketAddress(host, port), time);
            plain.setSoTimeout(time);
            SSLSocket socket =
                    (SSLSocket) options.tls().getSocketFactory().createSocket(plain, host, port, true);
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
            socket.startHandshake();
            plain.setSoTimeout(0);
            return new Streams(plain, socket.getInputStream(), socket.getOutputStream());
        } catch (IOException | RuntimeException | GeneralSecurityException wrong) {
            plain.close();
            throw wrong;
        }
    }

    /** A socket channel. */
    record Channel(SocketChannel channel) implements Transport {
        @Override
        public int read(ByteBuffer into) throws IOException {
            return channel.read(into);
        }

        @Override
        public void write(ByteBuffer... pieces) throws IOException {
            int first = 0;
            while (first < pieces.length) {
                channel.write(pieces, first, pieces.length - first);
                while (first < pieces.length && !pieces[first].hasRemaining()) {
                    first++;
                }
            }
        }

        @Override
        public void close() {
            try {
                channel.close();
            } catch (IOException gone) {
                // The socket is not used any more.
                return;
            }
        }
    }

    /** Streams over a socket. Closing the socket itself does not wait for data that is still to be written. */
    record Streams(Socket socket, InputStream in, OutputStream out) implements Transport {
        /** Most bytes in one TLS record. */
        private static final int RECORD = 16 << 10;

        @Override
        public int read(ByteBuffer into) throws IOException {
            byte[] bytes = new byte[Math.min(RECORD, into.remaining())];
            int count = in.read(bytes);
            if (count > 0) {
                into.put(bytes, 0, count);
            }
            return count;
        }

        @Override
        public void write(ByteBuffer... pieces) throws IOException {
            byte[] bytes = new byte[RECORD];
            int filled = 0;
            for (ByteBuffer piece : pieces) {
                while (piece.hasRemaining()) {
                    int count = Math.min(piece.remaining(), RECORD - filled);
                    piece.get(bytes, filled, count);
                    filled += count;
                    if (filled == RECORD) {
                        out.write(bytes);
                        filled = 0;
                    }
                }
            }
            out.write(bytes, 0, filled);
            out.flush();
        }

        @Override
        public void close() {
            try {
                socket.close();
            } catch (IOException gone) {
                return;
            }
        }
    }
}
