// The Go judge: crypto/x509 answers every case on standard input with a line on standard output.
//
// A case is one line of tab-separated fields: purpose, instant in unix seconds, name (may be empty),
// chain and anchors, the last two as comma-separated base64 of DER. An answer is "accepted" or
// "refused", a tab, and why.
package main

import (
	"bufio"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		if err != nil && err != io.EOF {
			fatal(err)
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 5 {
			fatal(fmt.Errorf("a case has 5 fields, this one %d", len(fields)))
		}
		if err := judge(fields); err != nil {
			why := strings.Join(strings.Fields(err.Error()), " ")
			fmt.Fprintf(out, "refused\t%s\n", why)
		} else {
			fmt.Fprint(out, "accepted\tok\n")
		}
	}
	if err := out.Flush(); err != nil {
		fatal(err)
	}
}

func judge(fields []string) error {
	purposes := map[string]x509.ExtKeyUsage{
		"server": x509.ExtKeyUsageServerAuth,
		"client": x509.ExtKeyUsageClientAuth,
	}
	purpose, known := purposes[fields[0]]
	at, err := strconv.ParseInt(fields[1], 10, 64)
	if !known || err != nil {
		fatal(fmt.Errorf("cannot read purpose %q or instant %q", fields[0], fields[1]))
	}
	chain, err := certificates(fields[3])
	if err != nil {
		return fmt.Errorf("chain: %w", err)
	}
	anchors, err := certificates(fields[4])
	if err != nil {
		return fmt.Errorf("anchors: %w", err)
	}
	if len(chain) == 0 {
		return fmt.Errorf("the chain is empty")
	}
	options := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   time.Unix(at, 0),
		KeyUsages:     []x509.ExtKeyUsage{purpose},
		// Verify hands this to VerifyHostname, which looks at IP SANs when the text is an IP address.
		DNSName: fields[2],
	}
	for _, anchor := range anchors {
		options.Roots.AddCert(anchor)
	}
	for _, intermediate := range chain[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	_, err = chain[0].Verify(options)
	return err
}

func certificates(field string) ([]*x509.Certificate, error) {
	var parsed []*x509.Certificate
	for _, text := range strings.Split(field, ",") {
		if text == "" {
			continue
		}
		der, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, certificate)
	}
	return parsed, nil
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
