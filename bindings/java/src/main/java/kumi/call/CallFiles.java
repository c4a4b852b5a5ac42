package kumi.call;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/** The files of a call: those that it sends, and those that come back. */
final class CallFiles implements AutoCloseable {
    /** Longest byte array that every Java virtual machine can make. */
    private static final long MOST_BYTES = Integer.MAX_VALUE - 8;
    private static final AtomicLong NEXT = new AtomicLong();

    /** A file that comes back. It is written beside its destination until it is complete. */
    private record ReceivedFile(Path temporary, Path target, FileChannel channel) {}

    private final List<FileChannel> sent = new ArrayList<>();
    private final List<ReceivedFile> backs = new ArrayList<>();
    /** Files that come back into memory, by parameter. */
    private final ByteArrayOutputStream[] contents;
    /** Destinations of files that come back, by parameter. */
    private final Object[] results;
    private int expected;

    CallFiles(int params) {
        contents = new ByteArrayOutputStream[params];
        results = new Object[params];
    }

    private static CallException failed(Path path, IOException why) {
        if (why instanceof ClosedByInterruptException) {
            return new CallException.Interrupted();
        }
        return new CallException.File(path + ": " + why, true);
    }

    /** The failure for a path outside the system's own file system, for example in an image of modules. */
    private static CallException unsupported(Path path) {
        return new CallException.File(path + " is in a file system (" + path.getFileSystem().provider().getScheme()
                + ") that cannot do this; give the content as byte[], or a path of the system", true);
    }

    /** Opens a file that is sent. */
    Exchange.Send send(int param, Path path, long[] bytes) {
        try {
            if (!Files.isRegularFile(path)) {
                throw new CallException.File(path + (Files.exists(path) ? " is no file" : " is not there"), true);
            }
            FileChannel channel = FileChannel.open(path, StandardOpenOption.READ);
            sent.add(channel);
            bytes[0] = channel.size();
            return Exchange.Send.of(param, (offset, into) -> read(channel, path, offset, into), bytes[0]);
        } catch (IOException wrong) {
            throw failed(path, wrong);
        } catch (UnsupportedOperationException none) {
            throw unsupported(path);
        }
    }

    private static void read(FileChannel channel, Path path, long offset, ByteBuffer into) throws IOException {
        long at = offset;
        while (into.hasRemaining()) {
            int count = channel.read(into, at);
            if (count < 0) {
                throw new IOException(path + " became shorter while it was sent");
            }
            at += count;
        }
    }

    /** The file that gets the name: a link's target, so that the link stays. Devices and folders cannot be replaced. */
    private static Path destination(Path path) {
        if (path.getFileName() == null) {
            throw new CallException.File(path + " is no file", true);
        }
        if (!Files.exists(path, LinkOption.NOFOLLOW_LINKS) || Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)) {
            return path;
        }
        if (!Files.isRegularFile(path)) {
            throw new CallException.File(path + (Files.exists(path)
                    ? " is no file; give the name of one, or one that is free" : " is a link that leads nowhere"), true);
        }
        try {
            return path.toRealPath();
        } catch (IOException wrong) {
            throw failed(path, wrong);
        }
    }

    /** Prepares a destination for a file that comes back. */
    Exchange.Target receive(int param, Path path, long most) {
        expected++;
        Path target = destination(path);
        Path temporary = target.resolveSibling(
                target.getFileName() + ".kumi-" + ProcessHandle.current().pid() + "-" + NEXT.getAndIncrement());
        try {
            FileChannel channel =
                    FileChannel.open(temporary, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
            backs.add(new ReceivedFile(temporary, target, channel));
            results[param] = path;
            return Exchange.Target.file(param, (offset, from) -> write(channel, offset, from), most);
        } catch (IOException wrong) {
            throw failed(temporary, wrong);
        } catch (UnsupportedOperationException none) {
            throw unsupported(target);
        }
    }

    private static void write(FileChannel channel, long offset, ByteBuffer from) throws IOException {
        long at = offset;
        while (from.hasRemaining()) {
            at += channel.write(from, at);
        }
    }

    /** Prepares a destination in memory, which grows with the content. */
    Exchange.Target receive(int param, long most) {
        expected++;
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        contents[param] = content;
        results[param] = content;
        Exchange.Destination place = (offset, from) -> {
            byte[] here = new byte[from.remaining()];
            from.get(here);
            try {
                content.writeBytes(here);
            } catch (OutOfMemoryError none) {
                throw new IOException("Java has no memory for " + (offset + here.length)
                        + " bytes of it; give a path to which it is written");
            }
        };
        return Exchange.Target.file(param, place, Math.min(most, MOST_BYTES));
    }

    /** Discards the received content, because the file comes once more. */
    void again() {
        for (ReceivedFile back : backs) {
            try {
                back.channel().truncate(0);
            } catch (IOException wrong) {
                throw failed(back.temporary(), wrong);
            }
        }
        for (ByteArrayOutputStream content : contents) {
            if (content != null) {
                content.reset();
            }
        }
    }

    /** Number of files that come back. */
    int expected() {
        return expected;
    }

    /** Where each file has come, by parameter. */
    Object[] results() {
        return results;
    }

    /** Everything has come: files get their final names. */
    void finish() {
        while (!backs.isEmpty()) {
            ReceivedFile back = backs.get(0);
            try {
                back.channel().close();
                Files.move(back.temporary(), back.target(), StandardCopyOption.ATOMIC_MOVE);
            } catch (AtomicMoveNotSupportedException other) {
                throw new CallException.File(back.target() + " cannot be replaced at once: " + other, false);
            } catch (IOException wrong) {
                throw new CallException.File(back.target() + ": " + wrong, false);
            }
            backs.remove(0);
        }
        for (int param = 0; param < contents.length; param++) {
            if (contents[param] != null) {
                results[param] = content(contents[param]);
            }
        }
    }

    private static byte[] content(ByteArrayOutputStream come) {
        try {
            return come.toByteArray();
        } catch (OutOfMemoryError none) {
            throw new CallException.File("Java has no memory for a file of " + come.size()
                    + " bytes; give a path to which it is written", false);
        }
    }

    /** The call has ended: removes files without a final name. */
    @Override
    public void close() {
        sent.forEach(CallFiles::close);
        sent.clear();
        for (ReceivedFile back : backs) {
            close(back.channel());
            try {
                Files.deleteIfExists(back.temporary());
            } catch (IOException stays) {
                // The call has its outcome already. A file that remains has a name that shows its origin.
                continue;
            }
        }
        backs.clear();
    }

    private static void close(FileChannel channel) {
        try {
            channel.close();
        } catch (IOException gone) {
            // No longer needed: it was only read, or is being deleted.
            return;
        }
    }
}
