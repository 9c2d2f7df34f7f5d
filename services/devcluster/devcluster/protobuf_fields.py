"""Field numbers of the Kubernetes messages that Go clients send as protobuf.

One message per entry: ``number:name:type``. No type is a string, ``[]`` a list, ``{}`` a map
from strings, ``!`` keeps a zero that means something else than absence (Go pointers), ``*``
spreads a message into its parent, ``-`` is read over. Numbers are those of the API's
``generated.proto`` (k8s.io/api and k8s.io/apimachinery, v0.37.2).
"""

TABLES = """
CSIDriver = 1:metadata:ObjectMeta 2:spec:CSIDriverSpec
CSIDriverSpec = 1:attachRequired:bool! 2:podInfoOnMount:bool! 3:volumeLifecycleModes:[]
    4:storageCapacity:bool! 5:fsGroupPolicy 6:tokenRequests:[]TokenRequest
    7:requiresRepublish:bool! 8:seLinuxMount:bool! 9:nodeAllocatableUpdatePeriodSeconds:int!
    10:serviceAccountTokenInSecrets:bool! 11:preventPodSchedulingIfMissing:bool!
CSINode = 1:metadata:ObjectMeta 2:spec:CSINodeSpec 3:-
CSINodeDriver = 1:name 2:nodeID 3:topologyKeys:[] 4:allocatable:VolumeNodeResources
CSINodeSpec = 1:drivers:[]CSINodeDriver
CSIPersistentVolumeSource = 1:driver 2:volumeHandle 3:readOnly:bool 4:fsType 5:volumeAttributes:{}
    6:controllerPublishSecretRef:SecretReference 7:nodeStageSecretRef:SecretReference
    8:nodePublishSecretRef:SecretReference 9:controllerExpandSecretRef:SecretReference
    10:nodeExpandSecretRef:SecretReference
CSIStorageCapacity = 1:metadata:ObjectMeta 2:nodeTopology:LabelSelector 3:storageClassName
    4:capacity:Quantity 5:maximumVolumeSize:Quantity
ClusterRole = 1:metadata:ObjectMeta 2:rules:[]PolicyRule
ClusterRoleBinding = 1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef
ConfigMap = 1:metadata:ObjectMeta 2:data:{} 3:binaryData:{}bytes 4:immutable:bool!
DeleteOptions = 1:gracePeriodSeconds:int! 2:preconditions:Preconditions 3:orphanDependents:bool
    4:propagationPolicy 5:dryRun:[]
Event = 1:metadata:ObjectMeta 2:involvedObject:ObjectReference 3:reason 4:message
    5:source:EventSource 6:firstTimestamp:Time 7:lastTimestamp:Time 8:count:int 9:type
    10:eventTime:MicroTime 11:series:EventSeries 12:action 13:related:ObjectReference
    14:reportingComponent 15:reportingInstance
EventSeries = 1:count:int 2:lastObservedTime:MicroTime
EventSource = 1:component 2:host
HostPathVolumeSource = 1:path 2:type
LabelSelector = 1:matchLabels:{} 2:matchExpressions:[]LabelSelectorRequirement
LabelSelectorRequirement = 1:key 2:operator 3:values:[]
Lease = 1:metadata:ObjectMeta 2:spec:LeaseSpec
LeaseSpec = 1:holderIdentity:! 2:leaseDurationSeconds:int! 3:acquireTime:MicroTime
    4:renewTime:MicroTime 5:leaseTransitions:int! 6:strategy 7:preferredHolder
LocalObjectReference = 1:name
LocalVolumeSource = 1:path 2:fsType
ModifyVolumeStatus = 1:targetVolumeAttributesClassName 2:status
NFSVolumeSource = 1:server 2:path 3:readOnly:bool
Namespace = 1:metadata:ObjectMeta 2:spec:NamespaceSpec 3:status:NamespaceStatus
NamespaceCondition = 1:type 2:status 4:lastTransitionTime:Time 5:reason 6:message
NamespaceSpec = 1:finalizers:[]
NamespaceStatus = 1:phase 2:conditions:[]NamespaceCondition
NodeSelector = 1:nodeSelectorTerms:[]NodeSelectorTerm
NodeSelectorRequirement = 1:key 2:operator 3:values:[]
NodeSelectorTerm = 1:matchExpressions:[]NodeSelectorRequirement
    2:matchFields:[]NodeSelectorRequirement
ObjectMeta = 1:name 2:generateName 3:namespace 4:- 5:uid 6:resourceVersion 7:generation:int
    8:creationTimestamp:Time 9:deletionTimestamp:Time 10:deletionGracePeriodSeconds:int!
    11:labels:{} 12:annotations:{} 13:ownerReferences:[]OwnerReference 14:finalizers:[] 17:-
ObjectReference = 1:kind 2:namespace 3:name 4:uid 5:apiVersion 6:resourceVersion 7:fieldPath
OwnerReference = 1:kind 3:name 4:uid 5:apiVersion 6:controller:bool! 7:blockOwnerDeletion:bool!
PersistentVolume = 1:metadata:ObjectMeta 2:spec:PersistentVolumeSpec
    3:status:PersistentVolumeStatus
PersistentVolumeClaim = 1:metadata:ObjectMeta 2:spec:PersistentVolumeClaimSpec
    3:status:PersistentVolumeClaimStatus
PersistentVolumeClaimCondition = 1:type 2:status 3:lastProbeTime:Time 4:lastTransitionTime:Time
    5:reason 6:message
PersistentVolumeClaimSpec = 1:accessModes:[] 2:resources:VolumeResourceRequirements 3:volumeName
    4:selector:LabelSelector 5:storageClassName:! 6:volumeMode
    7:dataSource:TypedLocalObjectReference 8:dataSourceRef:TypedObjectReference
    9:volumeAttributesClassName:!
PersistentVolumeClaimStatus = 1:phase 2:accessModes:[] 3:capacity:{}Quantity
    4:conditions:[]PersistentVolumeClaimCondition 5:allocatedResources:{}Quantity
    7:allocatedResourceStatuses:{} 8:currentVolumeAttributesClassName
    9:modifyVolumeStatus:ModifyVolumeStatus
PersistentVolumeSource = 3:hostPath:HostPathVolumeSource 5:nfs:NFSVolumeSource
    20:local:LocalVolumeSource 22:csi:CSIPersistentVolumeSource
PersistentVolumeSpec = 1:capacity:{}Quantity 2:*:PersistentVolumeSource 3:accessModes:[]
    4:claimRef:ObjectReference 5:persistentVolumeReclaimPolicy 6:storageClassName
    7:mountOptions:[] 8:volumeMode 9:nodeAffinity:VolumeNodeAffinity 10:volumeAttributesClassName
PersistentVolumeStatus = 1:phase 2:message 3:reason 4:lastPhaseTransitionTime:Time
PolicyRule = 1:verbs:[] 2:apiGroups:[] 3:resources:[] 4:resourceNames:[] 5:nonResourceURLs:[]
Preconditions = 1:uid 2:resourceVersion
Role = 1:metadata:ObjectMeta 2:rules:[]PolicyRule
RoleBinding = 1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef
RoleRef = 1:apiGroup:! 2:kind 3:name
Secret = 1:metadata:ObjectMeta 2:data:{}bytes 3:type 4:stringData:{} 5:immutable:bool!
SecretReference = 1:name 2:namespace
ServiceAccount = 1:metadata:ObjectMeta 2:secrets:[]ObjectReference
    3:imagePullSecrets:[]LocalObjectReference 4:automountServiceAccountToken:bool!
StorageClass = 1:metadata:ObjectMeta 2:provisioner 3:parameters:{} 4:reclaimPolicy
    5:mountOptions:[] 6:allowVolumeExpansion:bool! 7:volumeBindingMode
    8:allowedTopologies:[]TopologySelectorTerm
Subject = 1:kind 2:apiGroup 3:name 4:namespace
TokenRequest = 1:audience 2:expirationSeconds:int
TopologySelectorLabelRequirement = 1:key 2:values:[]
TopologySelectorTerm = 1:matchLabelExpressions:[]TopologySelectorLabelRequirement
TypedLocalObjectReference = 1:apiGroup 2:kind 3:name
TypedObjectReference = 1:apiGroup 2:kind 3:name 4:namespace
VolumeAttachment = 1:metadata:ObjectMeta 2:spec:VolumeAttachmentSpec
    3:status:VolumeAttachmentStatus
VolumeAttachmentSource = 1:persistentVolumeName 2:inlineVolumeSpec:PersistentVolumeSpec
VolumeAttachmentSpec = 1:attacher 2:source:VolumeAttachmentSource 3:nodeName
VolumeAttachmentStatus = 1:attached:bool! 2:attachmentMetadata:{} 3:attachError:VolumeError
    4:detachError:VolumeError
VolumeAttributesClass = 1:metadata:ObjectMeta 2:driverName 3:parameters:{}
VolumeError = 1:time:Time 2:message 3:errorCode:int!
VolumeNodeAffinity = 1:required:NodeSelector
VolumeNodeResources = 1:count:int!
VolumeResourceRequirements = 1:limits:{}Quantity 2:requests:{}Quantity
events.k8s.io/v1 Event = 1:metadata:ObjectMeta 2:eventTime:MicroTime 3:series:EventSeries
    4:reportingController 5:reportingInstance 6:action 7:reason 8:regarding:ObjectReference
    9:related:ObjectReference 10:note 11:type 12:deprecatedSource:EventSource
    13:deprecatedFirstTimestamp:Time 14:deprecatedLastTimestamp:Time 15:deprecatedCount:int
"""
