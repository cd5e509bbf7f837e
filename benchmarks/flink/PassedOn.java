import java.util.Objects;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/**
 * The type of immutable objects that stay in one chain of operators. A copy is the object itself: the async wait operator copies every
 * element where object reuse is on. To serialize one fails, so that a job whose chain is broken cannot be measured by mistake.
 */
final class PassedOn<T> extends TypeInformation<T> {
    private final Class<T> kind;

    PassedOn(Class<T> kind) {
        this.kind = kind;
    }

    @Override
    public TypeSerializer<T> createSerializer(SerializerConfig configuration) {
        return new Itself<>();
    }

    @Override
    public Class<T> getTypeClass() {
        return kind;
    }

    @Override
    public boolean isBasicType() {
        return false;
    }

    @Override
    public boolean isTupleType() {
        return false;
    }

    @Override
    public boolean isKeyType() {
        return false;
    }

    @Override
    public int getArity() {
        return 1;
    }

    @Override
    public int getTotalFields() {
        return 1;
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof PassedOn;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof PassedOn<?> type && type.kind == kind;
    }

    @Override
    public int hashCode() {
        return Objects.hash(kind);
    }

    @Override
    public String toString() {
        return "PassedOn(" + kind.getSimpleName() + ")";
    }

    private static final class Itself<T> extends TypeSerializerSingleton<T> {
        @Override
        public boolean isImmutableType() {
            return true;
        }

        @Override
        public T copy(T from) {
            return from;
        }

        @Override
        public T copy(T from, T reuse) {
            return from;
        }

        @Override
        public int getLength() {
            return -1;
        }

        @Override
        public T createInstance() {
            throw broken();
        }

        @Override
        public void serialize(T value, DataOutputView target) {
            throw broken();
        }

        @Override
        public T deserialize(DataInputView source) {
            throw broken();
        }

        @Override
        public T deserialize(T reuse, DataInputView source) {
            throw broken();
        }

        @Override
        public void copy(DataInputView source, DataOutputView target) {
            throw broken();
        }

        @Override
        public TypeSerializerSnapshot<T> snapshotConfiguration() {
            throw broken();
        }

        private static UnsupportedOperationException broken() {
            return new UnsupportedOperationException("the operators are not one chain");
        }
    }
}
