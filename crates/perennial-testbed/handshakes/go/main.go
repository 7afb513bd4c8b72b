// A TLS server and a TLS client of Go's crypto/tls.
//
// "serve" reads identities, one on each line: the chain and the key as base64 of PEM, with a tab between them. It answers
// each with the port of 127.0.0.1 that serves it, greets whoever connects, and ends when standard input does.
//
// "dial" reads questions, one on each line, with tabs between the fields: the port, the name to ask for, and the bundle as
// base64 of PEM. It answers each with a line: "accepted", or "refused", a tab, the reason, a tab, and why; or, where nobody
// got as far as to judge a certificate, "broken", a tab, and why. The clients in Java and Python do the same.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const patience = 30 * time.Second

func main() {
	if len(os.Args) != 3 {
		fatal(errors.New("say serve or dial, and the greeting"))
	}
	greeting := os.Args[2]
	each := map[string]func([]string, string) string{"serve": serve, "dial": dial}[os.Args[1]]
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF && line == "" {
			return
		}
		if err != nil {
			fatal(err)
		}
		// Answers are not kept back: whoever wants a server waits for it.
		fmt.Println(each(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), greeting))
	}
}

func serve(fields []string, greeting string) string {
	identity, err := tls.X509KeyPair(decode(fields[0]), decode(fields[1]))
	if err != nil {
		fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{identity}})
	if err != nil {
		fatal(err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				fatal(err)
			}
			go greet(connection.(*tls.Conn), greeting)
		}
	}()
	return fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
}

// What goes wrong here the client knows better.
func greet(connection *tls.Conn, greeting string) {
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(connection, greeting+"\n"); err == nil && connection.CloseWrite() == nil {
		// The client closes first, so that nothing that was sent is lost.
		io.Copy(io.Discard, connection)
	}
}

func dial(fields []string, greeting string) string {
	anchors := x509.NewCertPool()
	if !anchors.AppendCertsFromPEM(decode(fields[2])) {
		return "broken\tthe bundle has no certificate"
	}
	config := &tls.Config{ServerName: fields[1], RootCAs: anchors}
	connection, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", "127.0.0.1:"+fields[0], config)
	if err != nil {
		if reason := reason(err); reason != "" {
			return "refused\t" + reason + "\t" + oneLine(err.Error())
		}
		return "broken\t" + oneLine(err.Error())
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(patience))
	if said, err := io.ReadAll(connection); err != nil || string(said) != greeting+"\n" {
		return "broken\t" + oneLine(fmt.Sprintf("said %q, %v", said, err))
	}
	return "accepted"
}

// Why a certificate was refused, or nothing where something else is the matter.
func reason(err error) string {
	var name x509.HostnameError
	var issuer x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var constraint x509.ConstraintViolationError
	var critical x509.UnhandledCriticalExtension
	switch {
	case errors.As(err, &name):
		return "name"
	case errors.As(err, &issuer):
		return "issuer"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "time"
	case errors.As(err, &invalid), errors.As(err, &constraint), errors.As(err, &critical):
		return "other"
	}
	return ""
}

func decode(field string) []byte {
	text, err := base64.StdEncoding.DecodeString(field)
	if err != nil {
		fatal(err)
	}
	return text
}

func oneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
