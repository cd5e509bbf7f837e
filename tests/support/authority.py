"""A certificate authority of the tests."""

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "service.test"  # resolved by nobody
USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


class Authority:
    """A certificate authority that writes PEM files into a folder."""

    def __init__(self, folder):
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("an authority of our own")
        self.ca = self._write("ca.pem", self._signed(self._name, self._key, is_ca=True))

    def certificate(self, name):
        """A file with certificate and key of our own host names."""
        key = ec.generate_private_key(ec.SECP256R1())
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return self._write(f"{name}.pem", self._signed(_name(name), key) + secret)

    def _signed(self, name, key, *, is_ca=False):
        now = dt.datetime.now(dt.UTC)
        hosts = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName(HOST)]
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
                critical=False,
            )
        )
        if is_ca:
            signs = {"key_cert_sign": True, "crl_sign": True}
            usage = x509.KeyUsage(**(dict.fromkeys(USES, False) | signs))
            made = made.add_extension(identifier, critical=False).add_extension(
                usage, critical=True
            )
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return str(path)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
