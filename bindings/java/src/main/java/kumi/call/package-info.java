/**
 * Calls of numerical routines on servers.
 *
 * <pre>{@code
 * try (KumiClient client = KumiClient.connect("server:7070")) {
 *     Result result = client.call("dmmul", n, a, b);
 *     double[] c = result.doubles("C");
 * }
 * }</pre>
 */
package kumi.call;
