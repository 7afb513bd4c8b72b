// A TLS client of the JDK, as HttpsURLConnection configures one. Lines are as in the client in Go.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertPathBuilderException;
import java.security.cert.CertPathValidatorException;
import java.security.cert.CertPathValidatorException.BasicReason;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateExpiredException;
import java.security.cert.CertificateFactory;
import java.security.cert.CertificateNotYetValidException;
import java.security.cert.PKIXReason;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

public final class Dial {
    private static final int PATIENCE_MILLIS = 30_000;

    public static void main(String[] arguments) throws Exception {
        String greeting = arguments[0];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            out.print(dial(Integer.parseInt(fields[0]), fields[1], Base64.getDecoder().decode(fields[2]), greeting) + "\n");
        }
        out.flush();
    }

    private static String dial(int port, String name, byte[] bundle, String greeting) throws Exception {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trustIn(bundle).getTrustManagers(), null);
        try (Socket plain = new Socket()) {
            plain.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), PATIENCE_MILLIS);
            plain.setSoTimeout(PATIENCE_MILLIS);
            SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(plain, name, port, true);
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
            socket.startHandshake();
            String said = new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            return said.equals(greeting + "\n") ? "accepted" : "broken\tsaid " + oneLine(said);
        } catch (SSLHandshakeException refusal) {
            List<Throwable> causes = causes(refusal);
            String kind = causes.stream().anyMatch(it -> it instanceof CertificateException)
                    ? "refused\t" + reason(causes) : "broken";
            return kind + "\t" + why(causes);
        } catch (IOException error) {
            return "broken\t" + why(causes(error));
        }
    }

    /** A trust store with an entry for each certificate of the bundle. */
    private static TrustManagerFactory trustIn(byte[] bundle) throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        CertificateFactory certificates = CertificateFactory.getInstance("X.509");
        for (Certificate certificate : certificates.generateCertificates(new ByteArrayInputStream(bundle))) {
            store.setCertificateEntry("anchor-" + store.size(), certificate);
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory;
    }

    private static String reason(List<Throwable> causes) {
        for (Throwable cause : causes) {
            if (cause instanceof CertificateExpiredException || cause instanceof CertificateNotYetValidException) {
                return "time";
            }
            if (cause instanceof CertPathBuilderException) {
                return "issuer";
            }
            if (cause instanceof CertPathValidatorException invalid) {
                if (invalid.getReason() == BasicReason.EXPIRED || invalid.getReason() == BasicReason.NOT_YET_VALID) {
                    return "time";
                }
                if (invalid.getReason() == BasicReason.INVALID_SIGNATURE || invalid.getReason() == PKIXReason.NO_TRUST_ANCHOR) {
                    return "issuer";
                }
            }
            String message = String.valueOf(cause.getMessage());
            if (message.startsWith("No subject alternative") || message.startsWith("No name matching")) {
                return "name";
            }
        }
        return "other";
    }

    private static List<Throwable> causes(Throwable outermost) {
        List<Throwable> causes = new ArrayList<>();
        for (Throwable cause = outermost; cause != null; cause = cause.getCause()) {
            causes.add(cause);
        }
        return causes;
    }

    private static String why(List<Throwable> causes) {
        Set<String> messages = new LinkedHashSet<>();
        causes.forEach(cause -> messages.add(oneLine(String.valueOf(cause.getMessage()))));
        return String.join("; ", messages);
    }

    private static String oneLine(String text) {
        return text.replaceAll("\\s+", " ");
    }
}
