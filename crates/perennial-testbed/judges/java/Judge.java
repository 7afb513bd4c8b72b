// The Java judge: the PKIX trust manager of the JDK answers every case on standard input with a line on
// standard output. It is the object that a Java TLS client or server asks, so key usage and extended
// key usage of the leaf are checked too. Lines are as in the Go judge.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.PKIXBuilderParameters;
import java.security.cert.TrustAnchor;
import java.security.cert.X509CertSelector;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import javax.net.ssl.CertPathTrustManagerParameters;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;
import sun.security.util.HostnameChecker;

public final class Judge {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            if (fields.length != 5) {
                throw new IllegalArgumentException("a case has 5 fields, this one " + fields.length);
            }
            try {
                judge(fields);
                out.print("accepted\tok\n");
            } catch (CertificateException refusal) {
                out.print("refused\t" + why(refusal) + "\n");
            }
        }
        out.flush();
    }

    private static void judge(String[] fields) throws Exception {
        boolean server = switch (fields[0]) {
            case "server" -> true;
            case "client" -> false;
            default -> throw new IllegalArgumentException("cannot read purpose " + fields[0]);
        };
        Date at = new Date(Long.parseLong(fields[1]) * 1000);
        String name = fields[2];
        X509Certificate[] chain = certificates(fields[3]).toArray(new X509Certificate[0]);
        Set<TrustAnchor> anchors = new LinkedHashSet<>();
        for (X509Certificate anchor : certificates(fields[4])) {
            anchors.add(new TrustAnchor(anchor, null));
        }
        if (chain.length == 0 || anchors.isEmpty()) {
            throw new CertificateException(chain.length == 0 ? "the chain is empty" : "no anchors");
        }

        PKIXBuilderParameters parameters = new PKIXBuilderParameters(anchors, new X509CertSelector());
        parameters.setRevocationEnabled(false);
        parameters.setDate(at);
        TrustManagerFactory factory = TrustManagerFactory.getInstance("PKIX");
        factory.init(new CertPathTrustManagerParameters(parameters));
        X509TrustManager manager = (X509TrustManager) factory.getTrustManagers()[0];
        if (server) {
            // What TLS 1.3 passes: the leaf must be allowed to sign.
            manager.checkServerTrusted(chain, "UNKNOWN");
        } else {
            manager.checkClientTrusted(chain, chain[0].getPublicKey().getAlgorithm());
        }
        if (!name.isEmpty()) {
            HostnameChecker.getInstance(HostnameChecker.TYPE_TLS).match(name, chain[0], false);
        }
    }

    private static List<X509Certificate> certificates(String field) throws CertificateException {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        List<X509Certificate> parsed = new ArrayList<>();
        for (String text : field.split(",")) {
            if (!text.isEmpty()) {
                byte[] der = Base64.getDecoder().decode(text);
                parsed.add((X509Certificate) factory.generateCertificate(new ByteArrayInputStream(der)));
            }
        }
        return parsed;
    }

    /** The whole chain of causes, because the outermost one only says "path building failed". */
    private static String why(Throwable refusal) {
        Set<String> messages = new LinkedHashSet<>();
        for (Throwable cause = refusal; cause != null; cause = cause.getCause()) {
            messages.add(String.valueOf(cause.getMessage()).replaceAll("\\s+", " "));
        }
        return String.join("; ", messages);
    }
}
