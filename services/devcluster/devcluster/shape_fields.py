"""Fields of the built-in kinds that are only sent as JSON, in the notation of ``protobuf_fields``.

Numbers are left out; ``~`` after a message's name says that it has fields which are not listed
here and are taken as they are. ``any`` is a field whose content nobody here looks at.
"""

TABLES = """
Affinity ~= nodeAffinity:NodeAffinity podAffinity:any podAntiAffinity:any
Container ~= name image command:[] args:[] workingDir ports:[]ContainerPort env:[]EnvVar
    envFrom:[]any resources:ResourceRequirements volumeMounts:[]VolumeMount
    volumeDevices:[]VolumeDevice imagePullPolicy terminationMessagePath terminationMessagePolicy
    stdin:bool stdinOnce:bool tty:bool securityContext:SecurityContext
ContainerPort ~= name hostPort:int containerPort:int protocol hostIP
ContainerStatus ~= name state:any lastState:any ready:bool restartCount:int image imageID
    containerID started:bool
CustomResourceColumnDefinition ~= name type format description priority:int jsonPath
CustomResourceDefinition ~= metadata:ObjectMeta spec:CustomResourceDefinitionSpec
    status:CustomResourceDefinitionStatus
CustomResourceDefinitionNames ~= plural singular shortNames:[] kind listKind categories:[]
CustomResourceDefinitionSpec ~= group names:CustomResourceDefinitionNames scope
    versions:[]CustomResourceDefinitionVersion conversion:any preserveUnknownFields:bool
CustomResourceDefinitionStatus ~= conditions:[]any acceptedNames:CustomResourceDefinitionNames
    storedVersions:[]
CustomResourceDefinitionVersion ~= name served:bool storage:bool deprecated:bool
    schema:CustomResourceValidation subresources:CustomResourceSubresources
    additionalPrinterColumns:[]CustomResourceColumnDefinition selectableFields:[]SelectableField
CustomResourceSubresources ~= status:{}any scale:{}any
CustomResourceValidation ~= openAPIV3Schema:JSONSchemaProps
EnvVar ~= name value valueFrom:any
JSONSchemaProps ~= type format title description nullable:bool required:[] enum:[]any
    properties:{}JSONSchemaProps items:any additionalProperties:any x-kubernetes-list-type
    x-kubernetes-list-map-keys:[] x-kubernetes-preserve-unknown-fields:bool
    x-kubernetes-int-or-string:bool x-kubernetes-embedded-resource:bool
Namespaced ~= metadata:ObjectMeta
NetworkPolicy ~= metadata:ObjectMeta spec:NetworkPolicySpec
NetworkPolicyPeer ~= podSelector:LabelSelector namespaceSelector:LabelSelector ipBlock:IPBlock
NetworkPolicyPort ~= protocol port:IntOrString endPort:int
NetworkPolicyRule ~= ports:[]NetworkPolicyPort from:[]NetworkPolicyPeer to:[]NetworkPolicyPeer
NetworkPolicySpec ~= podSelector:LabelSelector ingress:[]NetworkPolicyRule
    egress:[]NetworkPolicyRule policyTypes:[]
IPBlock ~= cidr except:[]
Node ~= metadata:ObjectMeta spec:NodeSpec status:NodeStatus
NodeAddress ~= type address
NodeAffinity ~= requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
    preferredDuringSchedulingIgnoredDuringExecution:[]any
NodeCondition ~= type status lastHeartbeatTime:Time lastTransitionTime:Time reason message
NodeSpec ~= podCIDR podCIDRs:[] providerID unschedulable:bool taints:[]Taint
NodeStatus ~= capacity:{}Quantity allocatable:{}Quantity phase conditions:[]NodeCondition
    addresses:[]NodeAddress nodeInfo:{} volumesInUse:[] volumesAttached:[]any
PersistentVolumeClaimTemplate ~= metadata:ObjectMeta spec:PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource ~= claimName readOnly:bool
Pod ~= metadata:ObjectMeta spec:PodSpec status:PodStatus
PodCondition ~= type status lastProbeTime:Time lastTransitionTime:Time reason message
PodSecurityContext ~= runAsUser:int runAsGroup:int runAsNonRoot:bool supplementalGroups:[]int
    fsGroup:int fsGroupChangePolicy
PodSpec ~= volumes:[]Volume initContainers:[]Container containers:[]Container restartPolicy
    terminationGracePeriodSeconds:int activeDeadlineSeconds:int dnsPolicy nodeSelector:{}
    serviceAccountName serviceAccount automountServiceAccountToken:bool nodeName
    hostNetwork:bool hostPID:bool hostIPC:bool securityContext:PodSecurityContext
    imagePullSecrets:[]LocalObjectReference hostname subdomain affinity:Affinity schedulerName
    tolerations:[]Toleration priorityClassName priority:int enableServiceLinks:bool
    overhead:{}Quantity
PodStatus ~= phase conditions:[]PodCondition message reason nominatedNodeName hostIP podIP
    startTime:Time containerStatuses:[]ContainerStatus initContainerStatuses:[]ContainerStatus
    qosClass podIPs:[]any hostIPs:[]any
ResourceRequirements ~= limits:{}Quantity requests:{}Quantity
SecurityContext ~= privileged:bool runAsUser:int runAsGroup:int runAsNonRoot:bool
    readOnlyRootFilesystem:bool
SelectableField ~= jsonPath
Service ~= metadata:ObjectMeta spec:ServiceSpec status:any
ServicePort ~= name protocol port:int targetPort:IntOrString nodePort:int
ServiceSpec ~= ports:[]ServicePort selector:{} clusterIP clusterIPs:[] type externalIPs:[]
    externalName sessionAffinity
Taint ~= key value effect timeAdded:Time
Toleration ~= key operator value effect tolerationSeconds:int
Volume ~= name persistentVolumeClaim:PersistentVolumeClaimVolumeSource
    ephemeral:VolumeClaimSource emptyDir:any hostPath:HostPathVolumeSource secret:any configMap:any
    csi:any
VolumeClaimSource ~= volumeClaimTemplate:PersistentVolumeClaimTemplate
VolumeDevice ~= name devicePath
VolumeMount ~= name readOnly:bool mountPath subPath mountPropagation
"""
